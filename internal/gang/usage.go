// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Usage returns what a pod uses of a quota.
func Usage(spec *corev1.PodSpec) corev1.ResourceList {
	p := &corev1.Pod{Spec: *spec.DeepCopy()}
	for _, list := range [...][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list { // as the API server does: what is limited and not requested is requested to the limit
			r := &list[i].Resources
			for name, q := range r.Limits {
				if _, given := r.Requests[name]; !given {
					if r.Requests == nil {
						r.Requests = corev1.ResourceList{}
					}
					r.Requests[name] = q
				}
			}
		}
	}
	one := resource.MustParse("1")
	u := corev1.ResourceList{corev1.ResourcePods: one, "count/pods": one}
	for name, q := range resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}) {
		u[name] = q
		u[corev1.DefaultResourceRequestsPrefix+name] = q
	}
	for name, q := range resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{}) {
		if !strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			u["limits."+name] = q
		}
	}
	return u
}

// AddTimes adds n times more to sum.
func AddTimes(sum, more corev1.ResourceList, n int32) {
	for name, q := range more {
		all := sum[name]
		q.Mul(int64(n))
		all.Add(q)
		sum[name] = all
	}
}
