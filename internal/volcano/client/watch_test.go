// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
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

func TestManagedFieldsAreLeftOut(t *testing.T) {
	const fields = `"managedFields":[{"fieldsV1":{"f:spec":{"k:{\"name\":\"a]}\"}":{}}},"manager":"x"},{"manager":"y\\"}]`
	for name, tc := range map[string]struct{ in, want string }{
		"in the middle":            {`{"metadata":{"a":"1",` + fields + `,"b":"2"},"spec":{}}`, `{"metadata":{"a":"1","b":"2"},"spec":{}}`},
		"at the end":               {`{"metadata":{"a":"1",` + fields + `}}`, `{"metadata":{"a":"1"}}`},
		"at the beginning":         {`{"metadata":{` + fields + `,"b":"2"}}`, `{"metadata":{"b":"2"}}`},
		"alone":                    {`{"metadata":{` + fields + `}}`, `{"metadata":{}}`},
		"empty":                    {`{"metadata":{"managedFields":[],"b":"2"}}`, `{"metadata":{"b":"2"}}`},
		"none":                     {`{"metadata":{"b":"2"}}`, `{"metadata":{"b":"2"}}`},
		"in a text":                {`{"a":"{\"managedFields\":[]}"}`, `{"a":"{\"managedFields\":[]}"}`},
		"in another form":          {`{"metadata":{"managedFields": [1]}}`, `{"metadata":{"managedFields": [1]}}`},
		"cut off":                  {`{"metadata":{"managedFields":[{"a":"`, `{"metadata":{"managedFields":[{"a":"`},
		"nothing but that":         {`"managedFields":[]`, ``},
		"with what follows escape": {`{"managedFields":[{"a":"\"]"}],"b":1}`, `{"b":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(withoutManagedFields([]byte(tc.in))); got != tc.want {
				t.Errorf("%s\nbecomes %s\nwant    %s", tc.in, got, tc.want)
			}
		})
	}
}

// Whatever an object holds, it is read as it would be with its managed fields.
func TestAnObjectIsTheSameWithoutItsManagedFields(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		parts := []string{`"`, `\`, `[`, `]`, `{`, `}`, `,`, `:`, `managedFields`, `"managedFields":[`, "ä", "\n", "<"}
		var b strings.Builder
		for range random.IntN(6) {
			b.WriteString(parts[random.IntN(len(parts))])
		}
		return b.String()
	}
	for range 5000 {
		j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Name: text(), Annotations: map[string]string{text(): text(), text(): text()}}}
		j.Spec.Queue = text()
		j.Spec.Tasks = []batch.TaskSpec{{Name: text(), Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{text(): text()}}}}}
		want := j.DeepCopy()
		for range random.IntN(3) {
			fields, err := json.Marshal(map[string]any{text(): map[string]any{text(): []string{text(), text()}}})
			if err != nil {
				t.Fatal(err)
			}
			j.ManagedFields = append(j.ManagedFields, metav1.ManagedFieldsEntry{Manager: text(), FieldsV1: metav1.NewFieldsV1(string(fields))})
		}
		raw, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		got := &batch.Job{}
		if err := json.Unmarshal(withoutManagedFields(raw), got); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("job (-want +got):\n%s", diff)
		}
	}
}
