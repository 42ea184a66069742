// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"
)

func configMap(value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cm"}, Data: map[string]string{"k": value}}
}

func count(client *fake.Clientset, verb string) int {
	n := 0
	for _, a := range client.Actions() {
		if a.GetVerb() == verb {
			n++
		}
	}
	return n
}

func start(t *testing.T, objects ...*corev1.ConfigMap) (*Store, *fake.Clientset, *testingclock.FakeClock) {
	t.Helper()
	client := fake.NewClientset()
	for _, o := range objects {
		if err := client.Tracker().Add(o); err != nil {
			t.Fatal(err)
		}
	}
	c := testingclock.NewFakeClock(time.Unix(1000, 0))
	s := New(client, c)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	await(t, "the store to run", c.HasWaiters)
	return s, client, c
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("waited 10s for %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestAnObjectIsReadOnceForEachOfAFewPodsAndWatchedForMany(t *testing.T) {
	s, client, c := start(t, configMap("a"))
	ctx := context.Background()
	for range 2 {
		if cm, err := s.ConfigMap(ctx, "ns", "cm"); err != nil || cm.Data["k"] != "a" {
			t.Fatalf("ConfigMap = %v, %v", cm, err)
		}
	}
	if n := count(client, "watch"); n != 0 {
		t.Errorf("%d watches after two reads", n)
	}
	await(t, "reads that come from a watch", func() bool {
		before := count(client, "get")
		if _, err := s.ConfigMap(ctx, "ns", "cm"); err != nil {
			t.Fatal(err)
		}
		return count(client, "get") == before
	})
	if _, err := client.CoreV1().ConfigMaps("ns").Update(ctx, configMap("b"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the change", func() bool {
		cm, err := s.ConfigMap(ctx, "ns", "cm")
		return err == nil && cm.Data["k"] == "b"
	})
	c.Step(2 * linger)
	await(t, "the unused watch to be let go of", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.entries) == 0
	})
}

func TestWatchTellsWhenAMissingObjectAppears(t *testing.T) {
	s, client, _ := start(t)
	ctx := context.Background()
	told := make(chan struct{}, 10)
	stop := s.Watch(ConfigMap, "ns", "cm", func() { told <- struct{}{} })
	await(t, "the watch to know that there is none", func() bool {
		_, err := s.ConfigMap(ctx, "ns", "cm")
		_, known := s.watched(key{ConfigMap, "ns", "cm"})
		return apierrors.IsNotFound(err) && known
	})
	if _, err := client.CoreV1().ConfigMaps("ns").Create(ctx, configMap("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	<-told
	if cm, err := s.ConfigMap(ctx, "ns", "cm"); err != nil || cm.Data["k"] != "a" {
		t.Errorf("ConfigMap = %v, %v", cm, err)
	}
	stop()
	if err := client.CoreV1().ConfigMaps("ns").Delete(ctx, "cm", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the deletion", func() bool {
		_, err := s.ConfigMap(ctx, "ns", "cm")
		return apierrors.IsNotFound(err)
	})
	if len(told) != 0 {
		t.Error("a watcher that stopped was told of a change")
	}
}
