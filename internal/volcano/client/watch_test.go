// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/internal/volcano/batch"
)

// serve returns a client of an API server that answers all requests with status and body, and then ends.
func serve(t *testing.T, status int, body string) (c *Client, asked *string) {
	t.Helper()
	asked = new(string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = r.URL.RequestURI()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	c, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c, asked
}

func TestEventsOfAWatch(t *testing.T) {
	const job = `{"apiVersion":"batch.volcano.sh/v1alpha1","kind":"Job","metadata":{"name":"a","resourceVersion":"7"},"spec":{"minAvailable":2,"Queue":"not it"}}`
	cases := map[string]struct {
		body string
		want []string
	}{
		"each kind of event": {
			body: `{"type":"ADDED","object":` + job + "}\n" + `{"type":"MODIFIED","object":` + job + "}\n" + `{"type":"DELETED","object":` + job + `}`,
			want: []string{"ADDED a 7 2 ", "MODIFIED a 7 2 ", "DELETED a 7 2 "},
		},
		"the type may stand last":     {body: `{"object":` + job + `,"type":"ADDED"}`, want: []string{"ADDED a 7 2 "}},
		"a bookmark":                  {body: `{"type":"BOOKMARK","object":{"kind":"Job","metadata":{"resourceVersion":"9"}}}`, want: []string{"BOOKMARK  9 0 "}},
		"an error of the API server":  {body: `{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410}}`, want: []string{"ERROR Expired"}},
		"a type that nobody knows":    {body: `{"type":"GUESSED","object":` + job + `}`, want: []string{"ERROR InternalError"}},
		"an object of another form":   {body: `{"type":"ADDED","object":{"spec":{"minAvailable":"many"}}}`, want: []string{"ERROR InternalError"}},
		"a connection that was cut":   {body: `{"type":"ADDED","object":` + job + "}\n" + `{"type":"MODIF`, want: []string{"ADDED a 7 2 "}},
		"nothing before it was ended": {body: "", want: nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, asked := serve(t, http.StatusOK, tc.body)
			w, err := c.Jobs("here").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "5", TimeoutSeconds: new(int64(60))})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for e := range w.ResultChan() {
				switch o := e.Object.(type) {
				case *batch.Job:
					got = append(got, fmt.Sprintf("%s %s %s %d %s%s", e.Type, o.Name, o.ResourceVersion, o.Spec.MinAvailable, o.Spec.Queue, o.Kind))
				case *metav1.Status:
					got = append(got, fmt.Sprintf("%s %s", e.Type, o.Reason))
				default:
					t.Errorf("an event with a %T", o)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if want := "/apis/batch.volcano.sh/v1alpha1/namespaces/here/jobs?resourceVersion=5&timeout=1m0s&timeoutSeconds=60&watch=true"; *asked != want {
				t.Errorf("asked for %s, want %s", *asked, want)
			}
		})
	}
}

func TestWatchThatIsRefused(t *testing.T) {
	c, _ := serve(t, http.StatusGone, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
	if _, err := c.Jobs("").Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsResourceExpired(err) {
		t.Errorf("error %v, want one that says that the version has expired", err)
	}
}
