// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// hostsPath is where the lists of hosts are mounted, one file "<task>.host" for each task.
const hostsPath = "/etc/volcano"

// svc lets the pods of a Job find each other: a headless Service gives them names, a ConfigMap lists the names by task, and a
// NetworkPolicy keeps others out.
type svc struct {
	job          *batch.Job
	notReady     bool // the names of pods that are not ready are published too
	openToOthers bool
	hostsAsEnv   bool
	configMap    string
}

func newSvc(args []string, j *batch.Job) Plugin {
	s := &svc{job: j, hostsAsEnv: true, configMap: j.Name + "-svc"}
	flags(args, map[string]any{
		"publish-not-ready-addresses": &s.notReady, "disable-network-policy": &s.openToOthers, "inject-hosts-env": &s.hostsAsEnv,
	})
	return s
}

// Edit implements Plugin.
func (s *svc) Edit(p Pod) error {
	if p.Spec.Hostname == "" {
		p.Spec.Hostname = p.Name
	}
	if p.Spec.Subdomain == "" {
		p.Spec.Subdomain = s.job.Name
	}
	if !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == s.configMap }) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: s.configMap, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: s.configMap}},
		}})
	}
	eachContainer(p.Pod, func(c *corev1.Container) {
		if s.hostsAsEnv {
			for i := range s.job.Spec.Tasks {
				prefix := variablePrefix(s.job.Spec.Tasks[i].Name)
				for _, name := range [...]string{prefix + "_HOSTS", prefix + "_NUM"} {
					addEnv(c, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
						LocalObjectReference: corev1.LocalObjectReference{Name: s.configMap}, Key: name,
					}}})
				}
			}
		}
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == s.configMap }) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: s.configMap, MountPath: hostsPath})
		}
	})
	return nil
}

func variablePrefix(task string) string {
	return "VC_" + strings.ToUpper(strings.ReplaceAll(task, "-", "_"))
}

// Objects implements Plugin.
func (s *svc) Objects() []Object {
	selector := map[string]string{batch.JobNameKey: s.job.Name, batch.NamespaceKey: s.job.Namespace}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: s.job.Namespace, Name: name} }
	objects := []Object{
		{Plugin: "svc", Object: &corev1.ConfigMap{ObjectMeta: named(s.configMap), Data: s.data()}},
		{Plugin: "svc", Keep: true, Object: &corev1.Service{
			ObjectMeta: named(s.job.Name),
			Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: selector, PublishNotReadyAddresses: s.notReady},
		}},
	}
	if !s.openToOthers {
		same := metav1.LabelSelector{MatchLabels: selector}
		objects = append(objects, Object{Plugin: "svc", Keep: true, Object: &networkingv1.NetworkPolicy{
			ObjectMeta: named(s.job.Name),
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: same, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
				Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &same}}}},
			},
		}})
	}
	return objects
}

// data returns the lists of hosts.
func (s *svc) data() map[string]string {
	data := map[string]string{}
	for i := range s.job.Spec.Tasks {
		t := &s.job.Spec.Tasks[i]
		names := hosts(s.job, t)
		data[strings.ReplaceAll(t.Name, "-", "_")+".host"] = strings.Join(names, "\n")
		data[variablePrefix(t.Name)+"_HOSTS"] = strings.Join(names, ",")
		data[variablePrefix(t.Name)+"_NUM"] = strconv.Itoa(len(names))
	}
	return data
}
