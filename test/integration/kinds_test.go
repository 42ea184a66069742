// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/drover-dev/drover/internal/testkit/plane"
)

// Kubernetes' own collector looks for new kinds every half a minute, and forgets what belongs to their objects until then.
func TestObjectsOfANewKindAreCollectedSoon(t *testing.T) {
	p := plane.Start(t, plane.Options{})
	client, err := dynamic.NewForConfig(p.Config)
	if err != nil {
		t.Fatal(err)
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(t.Context(), herdDefinition(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defined := time.Now()
	herds := client.Resource(schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "herds"}).Namespace("default")
	var herd *unstructured.Unstructured
	poll(t, func(ctx context.Context) (err error) { // it takes a moment until the kind is served
		herd, err = herds.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.org/v1", "kind": "Herd", "metadata": map[string]any{"name": "north"},
		}}, metav1.CreateOptions{})
		return err
	})
	configMaps := p.Client().CoreV1().ConfigMaps("default")
	cow := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cow", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "example.org/v1", Kind: "Herd", Name: "north", UID: herd.GetUID()},
	}}}
	if _, err := configMaps.Create(t.Context(), cow, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	background := metav1.DeletePropagationBackground
	if err := herds.Delete(t.Context(), "north", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	poll(t, func(ctx context.Context) error { return gone(configMaps.Get(ctx, "cow", metav1.GetOptions{})) })
	if took := time.Since(defined); took > 20*time.Second {
		t.Errorf("the collector needed %s to know the kind", took)
	}
}

func herdDefinition() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "herds.example.org"},
		"spec": map[string]any{
			"group": "example.org", "scope": "Namespaced",
			"names": map[string]any{"kind": "Herd", "plural": "herds", "singular": "herd"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
}

// The point of this project is that these loops are its own.
func TestTheBinaryLinksNoneOfKubernetesOwnJobControllers(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/drover-dev/drover/cmd/drover").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if !slices.Contains(packages, "k8s.io/kubernetes/pkg/controller/garbagecollector") {
		t.Error("the list lacks the garbage collector: it is not the one that is meant")
	}
	for _, loop := range []string{"job", "cronjob", "ttlafterfinished"} {
		if path := "k8s.io/kubernetes/pkg/controller/" + loop; slices.Contains(packages, path) {
			t.Errorf("the binary links %s", path)
		}
	}
}
