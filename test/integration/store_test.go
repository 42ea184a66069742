// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/internal/testkit/plane"
)

// The store is in the same process, so nothing that is read or written goes through its socket.
func TestWritesTakeTheShortWayToTheStore(t *testing.T) {
	p := plane.Start(t, plane.Options{})
	client := p.Client()
	namespace := newNamespace(t, client, "store")
	const writes = 30
	before := sentToTheSocket(t, client)
	for i := range writes {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%d", i)}}
		if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := sentToTheSocket(t, client) - before; n >= writes {
		t.Errorf("%d writes have sent %.0f requests to the socket of the store", writes, n)
	}

	// What is read in pages, and as it was, comes from the store and not from a cache.
	page, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "too-late"}}
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	total := len(page.Items)
	for page.Continue != "" {
		if page, err = client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{Limit: 10, Continue: page.Continue}); err != nil {
			t.Fatal(err)
		}
		total += len(page.Items)
	}
	if total < writes || total > writes+1 { // kube-root-ca.crt may be there by now
		t.Errorf("the pages have %d ConfigMaps, want the %d of when the first one was read", total, writes)
	}
}

// sentToTheSocket returns how many reads and writes the API server has sent to etcd over a connection.
func sentToTheSocket(t *testing.T, client kubernetes.Interface) float64 {
	t.Helper()
	body, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, `grpc_client_started_total{`) || !strings.Contains(line, `grpc_service="etcdserverpb.KV"`) {
			continue
		}
		var n float64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n); err != nil {
			t.Fatalf("reading %q: %v", line, err)
		}
		sum += n
	}
	return sum
}
