// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// hooked is a cluster and the processes that serve its webhooks.
type hooked struct {
	t      *testing.T
	client *fake.Clientset
	clock  *steppedClock
}

func newHooked(t *testing.T) *hooked {
	t.Helper()
	h := &hooked{t: t, client: fake.NewClientset(), clock: &steppedClock{FakeClock: clocktesting.NewFakeClock(begin)}}
	version := 0
	h.client.PrependReactor("*", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		change, ok := action.(clienttesting.CreateAction) // an update is one, too
		if !ok {
			return false, nil, nil
		}
		secret := change.GetObject().(*corev1.Secret)
		if action.GetVerb() == "update" { // refused as by a real API server where somebody else was faster
			stored, err := h.client.Tracker().Get(action.GetResource(), secret.Namespace, secret.Name)
			if err != nil || stored.(*corev1.Secret).ResourceVersion != secret.ResourceVersion {
				return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), secret.Name, errors.New("it has changed"))
			}
		}
		version++
		secret.ResourceVersion = strconv.Itoa(version)
		return false, nil, nil
	})
	return h
}

// start starts a process, which serves until the test ends, and waits until the API server knows of it.
func (h *hooked) start(cfg Config) *Server {
	h.t.Helper()
	cfg.Listen, cfg.Life = "127.0.0.1:0", 90*time.Hour
	refuse := Webhook{
		Name: "validate.test", Path: "/validate", Group: "g", Version: "v1", Resource: "things", Operations: []admissionv1.Operation{admissionv1.Create},
		Answer: func(context.Context, *admissionv1.AdmissionRequest) (Answer, error) {
			return Answer{Problems: []string{"one", "two"}}, nil
		},
	}
	change := refuse
	change.Name, change.Path, change.Mutates = "mutate.test", "/mutate", true
	s, err := New(cfg, []Webhook{refuse, change}, h.client, h.clock, slog.New(slog.DiscardHandler))
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			h.t.Error(err)
		}
	})
	h.t.Cleanup(func() { cancel(); running.Wait() })
	h.await("the API server knows of the process", func() bool {
		select {
		case <-s.Ready():
			return true
		default:
			h.retry()
			return false
		}
	})
	return s
}

// retry lets the pause pass that follows a write which did not work.
func (h *hooked) retry() {
	h.t.Helper()
	if h.clock.dueBy(h.clock.Now().Add(retryPause)) > 0 {
		h.pass(retryPause)
	}
}

// pass lets time pass, and waits until each process that looks at its certificate then has done so and waits again.
func (h *hooked) pass(d time.Duration) {
	h.t.Helper()
	timers := h.clock.made() + h.clock.dueBy(h.clock.Now().Add(d))
	h.clock.Step(d)
	h.await("the processes have looked again", func() bool { return h.clock.made() >= timers })
}

// steppedClock knows of its timers.
type steppedClock struct {
	*clocktesting.FakeClock
	mu     sync.Mutex
	timers int
	due    []time.Time
}

// NewTimer implements clock.Clock.
func (c *steppedClock) NewTimer(d time.Duration) clock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timers++
	c.due = append(c.due, c.Now().Add(d))
	return c.FakeClock.NewTimer(d)
}

func (c *steppedClock) made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.timers
}

// dueBy returns how many timers are due after now and by that time.
func (c *steppedClock) dueBy(at time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, due := range c.due {
		if due.After(c.Now()) && !due.After(at) {
			n++
		}
	}
	return n
}

func (h *hooked) await(what string, ok func() bool) {
	h.t.Helper()
	limit := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-limit:
			h.t.Fatalf("waited in vain until %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// registered is what the API server knows of the validating webhook.
func (h *hooked) registered() admissionregistrationv1.WebhookClientConfig {
	h.t.Helper()
	list, err := h.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(context.Background(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		h.t.Fatalf("%d configurations: %v", len(list.Items), err)
	}
	return list.Items[0].Webhooks[0].ClientConfig
}

// ask asks a process as the API server does, which believes the authorities that it was told of, and returns the certificate shown.
func (h *hooked) ask(s *Server) (*x509.Certificate, error) {
	h.t.Helper()
	known := h.registered()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(known.CABundle) {
		h.t.Fatal("the registration has no authority")
	}
	host := "127.0.0.1"
	if known.Service != nil {
		host = known.Service.Name + "." + known.Service.Namespace + ".svc"
	} else if want := "https://" + s.listener.Addr().String() + "/validate"; *known.URL != want {
		h.t.Fatalf("registered as %s, want %s", *known.URL, want)
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", s.listener.Addr().String())
		},
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: host, Time: h.clock.Now},
	}}
	review, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{UID: "u"}})
	if err != nil {
		h.t.Fatal(err)
	}
	response, err := client.Post("https://"+host+"/validate", "application/json", bytes.NewReader(review))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || !strings.Contains(string(text), `"one; two"`) {
		return nil, fmt.Errorf("answer %s: %w", text, err)
	}
	return response.TLS.PeerCertificates[0], nil
}

func (h *hooked) mustAsk(s *Server) *x509.Certificate {
	h.t.Helper()
	c, err := h.ask(s)
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

func (h *hooked) secret(namespace, name string) *corev1.Secret {
	h.t.Helper()
	secret, err := h.client.CoreV1().Secrets(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	return secret
}

func authorities(bundle []byte) int { return bytes.Count(bundle, []byte("BEGIN CERTIFICATE")) }

func TestAnAPIServerBelievesAWebhookFromTheFirst(t *testing.T) {
	h := newHooked(t)
	c := h.mustAsk(h.start(Config{}))
	if c.NotAfter != begin.Add(90*time.Hour) {
		t.Errorf("the certificate is good until %v", c.NotAfter)
	}
	if secret := h.secret("kube-system", "drover-volcano-webhook"); secret.Type != corev1.SecretTypeTLS {
		t.Errorf("the Secret is of type %s", secret.Type)
	}
}

func TestACertificateIsRenewedInTimeAndBelievedAtEveryMoment(t *testing.T) {
	h := newHooked(t)
	s := h.start(Config{Check: time.Hour})
	first := h.mustAsk(s)
	h.pass(59 * time.Hour)
	if c := h.mustAsk(s); !c.Equal(first) {
		t.Fatal("it was renewed with more than a third of its life left")
	}
	h.pass(2 * time.Hour)
	if n := authorities(h.registered().CABundle); n != 2 {
		t.Fatalf("the API server believes %d authorities, want the new one and the old one", n)
	}
	if c := h.mustAsk(s); !c.Equal(first) {
		t.Error("the new certificate is shown before the API server has surely heard of its authority")
	}
	h.pass(handover)
	second := h.mustAsk(s)
	if second.Equal(first) || second.NotAfter != begin.Add(151*time.Hour) {
		t.Errorf("a certificate is shown that is good until %v", second.NotAfter)
	}
	// And once more: the oldest authority is not believed any longer.
	h.pass(61 * time.Hour)
	h.pass(handover)
	if third := h.mustAsk(s); third.Equal(second) {
		t.Error("it was not renewed a second time")
	}
	if n := authorities(h.registered().CABundle); n != 2 {
		t.Errorf("the API server believes %d authorities, want 2", n)
	}
}

func TestProcessesBehindAServiceShareACertificateAndItsRenewal(t *testing.T) {
	h := newHooked(t)
	cfg := Config{Service: "drover/hooks", Secret: "drover/hooks-tls", Check: time.Hour}
	a := h.start(cfg)
	cfg.Check = 20 * time.Hour // looks less often
	b := h.start(cfg)
	first := h.mustAsk(a)
	if !h.mustAsk(b).Equal(first) {
		t.Fatal("two processes show different certificates")
	}
	known := h.registered()
	if known.URL != nil || *known.Service.Path != "/validate" || *known.Service.Port != 443 {
		t.Errorf("registered as %+v", known)
	}
	for range 85 { // hours: in the 60th or 61st, both may be about to renew it; the other one hears of it in the 80th at the latest
		h.pass(time.Hour)
		h.mustAsk(a)
		h.mustAsk(b)
		h.pass(handover)
		h.mustAsk(a)
		h.mustAsk(b)
	}
	if c := h.mustAsk(a); c.Equal(first) || !h.mustAsk(b).Equal(c) {
		t.Error("the processes do not both show the new certificate")
	}
	h.secret("drover", "hooks-tls")
}

func TestWhatOthersHaveBrokenIsMended(t *testing.T) {
	cases := map[string]func(h *hooked){
		"the registration": func(h *hooked) {
			hooks := h.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
			list, err := hooks.List(context.Background(), metav1.ListOptions{})
			if err != nil {
				h.t.Fatal(err)
			}
			list.Items[0].Webhooks = nil
			if _, err := hooks.Update(context.Background(), &list.Items[0], metav1.UpdateOptions{}); err != nil {
				h.t.Fatal(err)
			}
		},
		"the Secret": func(h *hooked) {
			secret := h.secret("kube-system", "drover-volcano-webhook")
			secret.Data = map[string][]byte{corev1.TLSCertKey: []byte("nonsense")}
			if _, err := h.client.CoreV1().Secrets("kube-system").Update(context.Background(), secret, metav1.UpdateOptions{}); err != nil {
				h.t.Fatal(err)
			}
		},
		"the Secret, by deleting it": func(h *hooked) {
			if err := h.client.CoreV1().Secrets("kube-system").Delete(context.Background(), "drover-volcano-webhook", metav1.DeleteOptions{}); err != nil {
				h.t.Fatal(err)
			}
		},
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			h := newHooked(t)
			s := h.start(Config{})
			damage(h)
			h.pass(10 * time.Minute)
			h.mustAsk(s)
		})
	}
}

func TestAWriteThatIsRefusedIsTriedAgain(t *testing.T) {
	h := newHooked(t)
	refusals := 2
	h.client.PrependReactor("create", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		if refusals--; refusals >= 0 {
			return true, nil, apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("another process was faster"))
		}
		return false, nil, nil
	})
	h.mustAsk(h.start(Config{}))
}
