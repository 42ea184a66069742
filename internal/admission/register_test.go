// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheAPIServerAsksOnlyAboutNamespacesThatAreSelected(t *testing.T) {
	cases := map[string]struct {
		namespaces []string
		want       metav1.LabelSelector
	}{
		"all": {nil, metav1.LabelSelector{}},
		"some": {[]string{"a", "b"}, metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
		}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := newHooked(t)
			h.start(Config{Name: "hooks", Namespaces: tc.namespaces})
			client := h.client.AdmissionregistrationV1()
			validating, err := client.ValidatingWebhookConfigurations().Get(t.Context(), "hooks", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			mutating, err := client.MutatingWebhookConfigurations().Get(t.Context(), "hooks", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range []*metav1.LabelSelector{validating.Webhooks[0].NamespaceSelector, mutating.Webhooks[0].NamespaceSelector} {
				if diff := cmp.Diff(&tc.want, got); diff != "" {
					t.Errorf("namespaces (-want +got):\n%s", diff)
				}
			}
		})
	}
}
