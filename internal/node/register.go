// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/restartallcontainers"

	"github.com/drover-dev/drover/internal/node/machine"
	"github.com/drover-dev/drover/internal/node/process"
)

// annotationLimitations on the node object says in sentences what this machine does not let pods have.
const annotationLimitations = "drover.dev/limitations"

// What is kept back from pods, as a kubelet does by default: it begins to evict below this.
const (
	memoryReserve = 100 << 20
	diskReserve   = 10 // a tenth
)

// register makes the node object, or brings the one that is there up to date, and waits as long as the API server is not there.
func (n *Node) register(ctx context.Context) error {
	var tries retry
	for {
		err := n.tryRegister(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return err // it will not get better
		}
		tries.after(n.clock.Now(), n.cfg.RetryBackOff)
		n.log.Warn("Registering the node did not work", "err", err, "again", tries.last)
		timer := n.clock.NewTimer(tries.last)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
	}
}

func (n *Node) tryRegister(ctx context.Context) error {
	api := n.client.CoreV1().Nodes()
	want := n.object()
	have, err := api.Get(ctx, n.cfg.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		have, err = api.Create(ctx, want, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("registering node %q: %w", n.cfg.Name, err)
	}
	if merged, changed := merge(have, want); changed {
		if have, err = api.Update(ctx, merged, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("updating node %q: %w", n.cfg.Name, err)
		}
	}
	n.mu.Lock()
	n.node = have
	n.mu.Unlock()
	return n.reportStatus(ctx, true)
}

// merge returns have with the labels and annotations of want, without what a node that is ready must not bear.
func merge(have, want *corev1.Node) (*corev1.Node, bool) {
	merged := have.DeepCopy()
	if merged.Labels == nil {
		merged.Labels = map[string]string{}
	}
	maps.Copy(merged.Labels, want.Labels)
	if merged.Annotations == nil {
		merged.Annotations = map[string]string{}
	}
	maps.Copy(merged.Annotations, want.Annotations)
	if _, limited := want.Annotations[annotationLimitations]; !limited {
		delete(merged.Annotations, annotationLimitations)
	}
	// The API server puts this on every new node, for a controller that does not run here to take away.
	merged.Spec.Taints = slices.DeleteFunc(merged.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
	changed := !equality.Semantic.DeepEqual(have.Labels, merged.Labels) ||
		!equality.Semantic.DeepEqual(have.Annotations, merged.Annotations) ||
		!equality.Semantic.DeepEqual(have.Spec.Taints, merged.Spec.Taints)
	return merged, changed
}

// object returns the node object as it should be.
func (n *Node) object() *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: n.cfg.Name,
		Labels: map[string]string{
			corev1.LabelHostname:          n.cfg.Name,
			corev1.LabelOSStable:          runtime.GOOS,
			corev1.LabelArchStable:        runtime.GOARCH,
			"beta.kubernetes.io/os":       runtime.GOOS,
			"beta.kubernetes.io/arch":     runtime.GOARCH,
			"node.drover.dev/pods-run-as": "processes",
		},
		Annotations: map[string]string{},
	}}
	maps.Copy(node.Labels, n.cfg.Labels)
	maps.Copy(node.Annotations, n.cfg.Annotations)
	if notes := limitations(n.features); len(notes) > 0 {
		node.Annotations[annotationLimitations] = strings.Join(notes, "; ")
	}
	node.Status = n.status(nil)
	return node
}

// limitations says what this machine does not let pods have.
func limitations(f process.Features) []string {
	var notes []string
	if f.Isolation != process.Full {
		notes = append(notes, "pods are not isolated from the host and from each other, and have no volumes at their mount paths: "+f.Isolated.Reason)
	}
	if f.UserNamespace {
		notes = append(notes, "every container has one user and one group only")
	}
	for _, limit := range []struct {
		what    string
		feature process.Feature
	}{{"limits of CPU", f.CPU}, {"limits of memory", f.Memory}, {"limits of processes", f.PIDs}} {
		if !limit.feature.Available {
			notes = append(notes, limit.what+" are not enforced: "+limit.feature.Reason)
		}
	}
	return notes
}

// resources returns what the machine has, and what of it pods may use.
func resources(m machine.Facts, maxPods int) (capacity, allocatable corev1.ResourceList) {
	quantity := func(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.BinarySI) }
	pods := *resource.NewQuantity(int64(maxPods), resource.DecimalSI)
	cpu := *resource.NewQuantity(int64(m.CPUs), resource.DecimalSI)
	capacity = corev1.ResourceList{
		corev1.ResourceCPU:              cpu,
		corev1.ResourceMemory:           quantity(m.MemoryBytes),
		corev1.ResourceEphemeralStorage: quantity(m.DiskBytes),
		corev1.ResourcePods:             pods,
	}
	allocatable = corev1.ResourceList{
		corev1.ResourceCPU:              cpu,
		corev1.ResourceMemory:           quantity(max(0, m.MemoryBytes-memoryReserve)),
		corev1.ResourceEphemeralStorage: quantity(m.DiskBytes - m.DiskBytes/diskReserve),
		corev1.ResourcePods:             pods,
	}
	return capacity, allocatable
}

// status returns the node's status as it should be, given the conditions that are there.
func (n *Node) status(old []corev1.NodeCondition) corev1.NodeStatus {
	capacity, allocatable := resources(n.machine, n.cfg.MaxPods)
	s := corev1.NodeStatus{
		Capacity:    capacity,
		Allocatable: allocatable,
		Conditions:  n.conditions(old),
		NodeInfo: corev1.NodeSystemInfo{
			MachineID:               n.machine.MachineID,
			SystemUUID:              n.machine.SystemUUID,
			BootID:                  n.machine.BootID,
			KernelVersion:           n.machine.Kernel,
			OSImage:                 n.machine.OSImage,
			ContainerRuntimeVersion: idPrefix + "processes",
			KubeletVersion:          n.cfg.KubernetesVersion,
			OperatingSystem:         runtime.GOOS,
			Architecture:            runtime.GOARCH,
		},
		DeclaredFeatures: []string{restartallcontainers.RestartAllContainersOnContainerExits},
	}
	for _, ip := range n.cfg.IPs {
		s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.cfg.Name})
	if n.listener != nil {
		if _, port, err := net.SplitHostPort(n.listener.Addr().String()); err == nil {
			if p, err := strconv.ParseInt(port, 10, 32); err == nil {
				s.DaemonEndpoints.KubeletEndpoint.Port = int32(p)
			}
		}
	}
	return s
}

// conditions returns the node's conditions as they are now.
func (n *Node) conditions(old []corev1.NodeCondition) []corev1.NodeCondition {
	now := metav1.NewTime(n.clock.Now()).Rfc3339Copy()
	usage, err := n.machine.Usage(n.cfg.Dir)
	if err != nil {
		n.log.Warn("Measuring the machine did not work", "err", err)
	}
	pressure := func(t corev1.NodeConditionType, yes bool, has, hasNot, message, calm string) corev1.NodeCondition {
		switch {
		case err != nil:
			return corev1.NodeCondition{Type: t, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: err.Error()}
		case yes:
			return corev1.NodeCondition{Type: t, Status: corev1.ConditionTrue, Reason: has, Message: message}
		}
		return corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse, Reason: hasNot, Message: calm}
	}
	list := []corev1.NodeCondition{
		pressure(corev1.NodeMemoryPressure, usage.MemoryPressure(), "KubeletHasInsufficientMemory", "KubeletHasSufficientMemory",
			"kubelet has insufficient memory available", "kubelet has sufficient memory available"),
		pressure(corev1.NodeDiskPressure, usage.DiskPressure(), "KubeletHasDiskPressure", "KubeletHasNoDiskPressure",
			"kubelet has disk pressure", "kubelet has no disk pressure"),
		pressure(corev1.NodePIDPressure, usage.PIDPressure(n.machine.PIDs), "KubeletHasInsufficientPID", "KubeletHasSufficientPID",
			"kubelet has insufficient PID available", "kubelet has sufficient PID available"),
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	}
	for i := range list {
		c := &list[i]
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		for _, before := range old {
			if before.Type == c.Type && before.Status == c.Status {
				c.LastTransitionTime = before.LastTransitionTime
			}
		}
	}
	for _, before := range old {
		if !slices.ContainsFunc(list, func(c corev1.NodeCondition) bool { return c.Type == before.Type }) {
			list = append(list, before)
		}
	}
	return list
}

// reportStatus writes the node's status if it has changed, or in any case when always is set.
func (n *Node) reportStatus(ctx context.Context, always bool) error {
	n.mu.Lock()
	node := n.node.DeepCopy()
	n.mu.Unlock()
	api := n.client.CoreV1().Nodes()
	for {
		want := n.status(node.Status.Conditions)
		if !always && sameStatus(node.Status, want) {
			return nil
		}
		// What others have put there stays.
		want.VolumesInUse, want.VolumesAttached, want.Images = node.Status.VolumesInUse, node.Status.VolumesAttached, node.Status.Images
		want.Config, want.Features, want.RuntimeHandlers = node.Status.Config, node.Status.Features, node.Status.RuntimeHandlers
		for name, q := range node.Status.Capacity {
			if _, own := want.Capacity[name]; !own {
				want.Capacity[name], want.Allocatable[name] = q, node.Status.Allocatable[name]
			}
		}
		node.Status = want
		answer, err := api.UpdateStatus(ctx, node, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			if node, err = api.Get(ctx, n.cfg.Name, metav1.GetOptions{}); err == nil {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("writing the status of node %q: %w", n.cfg.Name, err)
		}
		n.mu.Lock()
		n.node = answer
		n.mu.Unlock()
		return nil
	}
}

// sameStatus compares two statuses but for the times of heartbeats.
func sameStatus(a, b corev1.NodeStatus) bool {
	if len(a.Conditions) != len(b.Conditions) || !equality.Semantic.DeepEqual(a.Allocatable, b.Allocatable) ||
		!equality.Semantic.DeepEqual(a.Addresses, b.Addresses) || a.DaemonEndpoints != b.DaemonEndpoints {
		return false
	}
	for i := range a.Conditions {
		x, y := a.Conditions[i], b.Conditions[i]
		if x.Type != y.Type || x.Status != y.Status || x.Reason != y.Reason {
			return false
		}
	}
	return true
}

// renewLease says again and again that the node is alive.
func (n *Node) renewLease(ctx context.Context) {
	seconds := int32(4 * n.cfg.Heartbeat / 1e9)
	owner := func(l *coordinationv1.Lease) error {
		if len(l.OwnerReferences) > 0 {
			return nil
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.node.Name, UID: n.node.UID}}
		return nil
	}
	lease.NewController(n.clock, n.client, n.cfg.Name, max(1, seconds), func() {
		n.log.Warn("Renewing the node's lease keeps failing")
	}, n.cfg.Heartbeat, n.cfg.Name, corev1.NamespaceNodeLease, owner).Run(ctx)
}
