// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/drover-dev/drover/internal/volcano/scheduling"
)

func TestPoliciesAreRegisteredAndMended(t *testing.T) {
	h := newHooked(t)
	h.start(Config{Policies: Policies("mine")})
	ctx, api := context.Background(), h.client.AdmissionregistrationV1()
	rules, err := api.ValidatingAdmissionPolicies().Get(ctx, "drover-volcano-pod-disruption", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := rules.Spec.MatchConditions[0].Expression; got != `object.spec.schedulerName == "mine"` {
		t.Errorf("the pods that are meant: %s", got)
	}
	want := rules.Spec.DeepCopy()
	rules.Spec.Validations = nil
	if _, err := api.ValidatingAdmissionPolicies().Update(ctx, rules, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := api.ValidatingAdmissionPolicyBindings().Delete(ctx, "drover-volcano-pod-disruption", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := api.MutatingAdmissionPolicyBindings().Delete(ctx, "drover-volcano-podgroup-queue", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	h.pass(10 * time.Minute)
	if rules, err = api.ValidatingAdmissionPolicies().Get(ctx, rules.Name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*want, rules.Spec); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	if b, err := api.ValidatingAdmissionPolicyBindings().Get(ctx, rules.Name, metav1.GetOptions{}); err != nil || b.Spec.PolicyName != rules.Name {
		t.Errorf("binding %v, error %v", b, err)
	}
	if b, err := api.MutatingAdmissionPolicyBindings().Get(ctx, "drover-volcano-podgroup-queue", metav1.GetOptions{}); err != nil || b.Spec.PolicyName != "drover-volcano-podgroup-queue" {
		t.Errorf("binding %v, error %v", b, err)
	}
}

func TestAnAPIServerThatKnowsNoPoliciesHasTheWebhooksAllTheSame(t *testing.T) {
	h := newHooked(t)
	h.client.PrependReactor("*", "mutatingadmissionpolicies", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	})
	h.mustAsk(h.start(Config{Policies: Policies("")}))
	ctx, api := context.Background(), h.client.AdmissionregistrationV1()
	if _, err := api.ValidatingAdmissionPolicyBindings().Get(ctx, "drover-volcano-pod-disruption", metav1.GetOptions{}); err != nil {
		t.Errorf("the policy that it does know: %v", err)
	}
}

// ask has one of hooks answer.
func ask(t *testing.T, hooks []Webhook, path string, r *admissionv1.AdmissionRequest) (Answer, error) {
	t.Helper()
	for _, h := range hooks {
		if h.Path == path {
			return h.Answer(context.Background(), r)
		}
	}
	t.Fatalf("there is no webhook %s", path)
	return Answer{}, nil
}

func TestQueuesAreCompleted(t *testing.T) {
	for name, tc := range map[string]struct {
		raw  string
		want []Operation
	}{
		"without a spec": {`{"metadata":{"name":"q"}}`, []Operation{
			{"add", "/spec", map[string]any{}}, {"add", "/spec/weight", int32(1)}, {"add", "/spec/reclaimable", new(true)},
		}},
		"with a weight of nothing": {`{"metadata":{"name":"q"},"spec":{"weight":0,"reclaimable":false}}`, []Operation{{"add", "/spec/weight", int32(1)}}},
		"with everything":          {`{"metadata":{"name":"q"},"spec":{"weight":2,"reclaimable":false}}`, nil},
		"with a hierarchy": {`{"metadata":{"name":"q","annotations":{"volcano.sh/hierarchy":"a","volcano.sh/hierarchy-weights":"2"}},"spec":{"weight":2,"reclaimable":false}}`, []Operation{
			{"add", "/metadata/annotations/volcano.sh~1hierarchy", "root/a"}, {"add", "/metadata/annotations/volcano.sh~1hierarchy-weights", "1/2"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ask(t, VolcanoQueues(nil), "/queues/mutate", &admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: []byte(tc.raw)}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Patch); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestQueuesAreComparedWithThoseThatThereAre(t *testing.T) {
	hooks := VolcanoQueues(func(context.Context) ([]scheduling.Queue, error) {
		return []scheduling.Queue{{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, {ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: scheduling.QueueSpec{Parent: "p"}}}, nil
	})
	raw := func(parent string) runtime.RawExtension {
		text, err := json.Marshal(&scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: scheduling.QueueSpec{Parent: parent}})
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: text}
	}
	for name, tc := range map[string]struct {
		r    admissionv1.AdmissionRequest
		want []string
	}{
		"one that is made":    {admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: raw("nowhere")}, []string{"parent queue `nowhere` of queue `q` does not exist"}},
		"one that is changed": {admissionv1.AdmissionRequest{Operation: admissionv1.Update, Object: raw("q"), OldObject: raw("p")}, []string{"queue `q` can not be its own parent"}},
		"one that is deleted": {admissionv1.AdmissionRequest{Operation: admissionv1.Delete, Name: "p", OldObject: raw("")}, []string{"queue `p` can not be deleted because it has 1 child queues: q"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ask(t, hooks, "/queues/validate", &tc.r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
	// What is as it was needs no look at the others.
	hooks = VolcanoQueues(func(context.Context) ([]scheduling.Queue, error) { return nil, errors.New("nobody answers") })
	if got, err := ask(t, hooks, "/queues/validate", &admissionv1.AdmissionRequest{Operation: admissionv1.Update, Object: raw("p"), OldObject: raw("p")}); err != nil || got.Problems != nil {
		t.Errorf("answer %v, error %v", got, err)
	}
}

func TestPodGroupsNeedAQueueThatIsOpen(t *testing.T) {
	hooks := PodGroups(func(name string) (*scheduling.Queue, int) {
		switch name {
		case "default":
			return &scheduling.Queue{}, 0
		case "shut":
			return &scheduling.Queue{Status: scheduling.QueueStatus{State: scheduling.QueueClosing}}, 0
		}
		return nil, 0
	})
	for queue, want := range map[string][]string{
		"":        nil,
		"shut":    {"can only submit PodGroup to queue with state `Open`, queue `shut` status is `Closing`"},
		"nowhere": {`unable to find queue: queues.scheduling.volcano.sh "nowhere" not found`},
	} {
		got, err := ask(t, hooks, "/podgroups/validate", &admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: []byte(`{"spec":{"queue":"` + queue + `"}}`)}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Problems); diff != "" {
			t.Errorf("problems with queue %q (-want +got):\n%s", queue, diff)
		}
	}
}
