// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWhatIsKnownOfAWriteFollowsFromItsAnswer(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	answered := func(code int) error {
		return apierrors.NewGenericServerResponse(code, http.MethodPost, pods, "p", "", 0, true)
	}
	cases := map[string]struct {
		err  error
		want outcome
	}{
		"no error means that it is done":                                 {nil, done},
		"a lost connection tells nothing":                                {errors.New("connection reset by peer"), unknown},
		"an error within the API server tells nothing":                   {apierrors.NewInternalError(errors.New("etcd")), unknown},
		"a webhook that cannot be asked keeps anything from being done":  {apierrors.NewInternalError(errors.New(`failed calling webhook "a.example.com": failed to call webhook: Post "https://a.b.svc:443/": connection refused`)), refused},
		"a timeout of the API server tells nothing":                      {apierrors.NewServerTimeout(pods, "create", 1), unknown},
		"a proxy that has lost the API server tells nothing":             {answered(http.StatusBadGateway), unknown},
		"a proxy that does not reach the API server any more, neither":   {answered(http.StatusServiceUnavailable), unknown},
		"a proxy that has waited too long tells nothing":                 {answered(http.StatusGatewayTimeout), unknown},
		"an API server without a storage tells nothing":                  {apierrors.NewServiceUnavailable("no etcd"), unknown},
		"who is asked to come again later knows that nothing was done":   {apierrors.NewTooManyRequests("busy", 1), refused},
		"who may not do it knows that nothing was done":                  {apierrors.NewForbidden(pods, "p", errors.New("quota")), refused},
		"who has tried to do it twice knows that this one was not taken": {apierrors.NewAlreadyExists(pods, "p"), refused},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := outcomeOf(tc.err); got != tc.want {
				t.Errorf("outcome %d, want %d", got, tc.want)
			}
		})
	}
}
