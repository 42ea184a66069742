// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// refusing returns a jobAPI of an API server that refuses every write with status, in protobuf as the real one does.
func refusing(t *testing.T, status metav1.Status) jobAPI {
	t.Helper()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		w.WriteHeader(int(status.Code))
		if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(&status, w); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"}})
	if err != nil {
		t.Fatal(err)
	}
	return jobClient{client}
}

// The event once said "Error creating: unknown (post pods)".
func TestAPodThatAQuotaRefusesIsToldWithTheQuota(t *testing.T) {
	refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "j-x", nil).ErrStatus
	refusal.Message = `pods "j-x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1`
	_, err := refusing(t, refusal).CreatePod(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "j-x", Namespace: "ns"}})
	if !apierrors.IsForbidden(err) || err.Error() != refusal.Message {
		t.Errorf("creating the pod: %v, want what the API server says: %s", err, refusal.Message)
	}
}

func TestAPodForANamespaceThatIsGoingIsRefusedForThatReason(t *testing.T) {
	refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "j-x", nil).ErrStatus
	refusal.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace"}}
	_, err := refusing(t, refusal).CreatePod(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "j-x", Namespace: "ns"}})
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("creating the pod: %v, which does not say that the namespace is going", err)
	}
}
