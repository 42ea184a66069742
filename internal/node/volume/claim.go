// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// claim returns the directory behind a claim. Whether the claim is bound is for others to bring about; until it is, this is
// an error.
func (m *Manager) claim(ctx context.Context, pod *corev1.Pod, source *corev1.PersistentVolumeClaimVolumeSource) (mounted, error) {
	claim, err := m.objects.Claim(ctx, pod.Namespace, source.ClaimName)
	if err != nil {
		return mounted{}, err
	}
	switch {
	case claim.DeletionTimestamp != nil:
		return mounted{}, fmt.Errorf("persistentvolumeclaim %q is being deleted", source.ClaimName)
	case claim.Status.Phase == corev1.ClaimLost:
		return mounted{}, fmt.Errorf("persistentvolumeclaim %q has lost its volume", source.ClaimName)
	case claim.Spec.VolumeName == "" || claim.Status.Phase != corev1.ClaimBound:
		return mounted{}, fmt.Errorf("persistentvolumeclaim %q is not bound to a volume", source.ClaimName)
	case claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock:
		return mounted{}, fmt.Errorf("a block volume is %w", ErrUnsupported)
	}
	pv, err := m.objects.Volume(ctx, claim.Spec.VolumeName)
	if err != nil {
		return mounted{}, err
	}
	if pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != claim.UID {
		return mounted{}, fmt.Errorf("persistentvolume %q is not bound to persistentvolumeclaim %q", pv.Name, claim.Name)
	}
	if !m.fits(pv) {
		return mounted{}, fmt.Errorf("persistentvolume %q cannot be used on this node", pv.Name)
	}
	switch {
	case pv.Spec.HostPath != nil:
		return mounted{path: pv.Spec.HostPath.Path, readOnly: source.ReadOnly}, checkHostPath(pv.Spec.HostPath)
	case pv.Spec.Local != nil:
		if _, err := os.Stat(pv.Spec.Local.Path); err != nil {
			return mounted{}, fmt.Errorf("path %q does not exist", pv.Spec.Local.Path)
		}
		return mounted{path: pv.Spec.Local.Path, readOnly: source.ReadOnly}, m.own(pv.Spec.Local.Path, pod, false)
	}
	return mounted{}, fmt.Errorf("persistentvolume %q is neither hostPath nor local, which is %w", pv.Name, ErrUnsupported)
}

func (m *Manager) fits(pv *corev1.PersistentVolume) bool {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return true
	}
	node := &corev1.Node{}
	node.Name = m.nodeName
	node.Labels = map[string]string{corev1.LabelHostname: m.nodeName}
	selector, err := nodeaffinity.NewNodeSelector(pv.Spec.NodeAffinity.Required)
	return err == nil && selector.Match(node)
}
