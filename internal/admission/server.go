// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/drover-dev/drover/internal/config"
)

// Config says where webhooks are served.
type Config struct {
	// Listen is the address to listen on, "host:port"; port 0 is a free one.
	Listen string
	// Service is "namespace/name" of the Service by which the API server reaches this process; "": it reaches the address that is
	// listened on.
	Service string
	// Secret is "namespace/name" of the Secret that holds key and certificates; several processes share it.
	Secret string
	// Name is the name of the webhook configurations; "" means config.WebhooksName.
	Name string
	// Namespaces are those about whose objects the API server asks; none: all.
	Namespaces []string
	// Policies are rules that the API server is to carry out by itself.
	Policies []Policy
	// Life is how long certificates are good; 0 means 90 days. They are renewed when a third of it is left.
	Life time.Duration
	// Check is how often certificates and registration are looked at; 0 means 10 minutes.
	Check time.Duration
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = config.WebhooksName
	}
	if c.Secret == "" {
		c.Secret = "kube-system/" + c.Name + "-webhook"
	}
	if c.Life == 0 {
		c.Life = 90 * 24 * time.Hour
	}
	if c.Check == 0 {
		c.Check = 10 * time.Minute
	}
	return c
}

// Webhook answers for one path.
type Webhook struct {
	// Name is that of the webhook, as it stands in refusals: "validatejob.volcano.sh".
	Name string
	Path string // "/jobs/validate"
	// Group, Version, Resource and Operations say for which requests the API server asks.
	Group, Version, Resource string
	Operations               []admissionv1.Operation
	// Condition says in CEL for which of them; "": for all.
	Condition string
	// Mutates says that Answer may change the object.
	Mutates bool
	// Answer decides. An error means that the request is no such object.
	Answer func(ctx context.Context, r *admissionv1.AdmissionRequest) (Answer, error)
}

// Answer is what becomes of a request.
type Answer struct {
	// Problems are why it is refused; none: it is not.
	Problems []string
	// Patch are the changes to the object.
	Patch []Operation
}

// Operation is one operation of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Server serves webhooks.
type Server struct {
	cfg      Config
	hooks    []Webhook
	client   kubernetes.Interface
	clock    clock.WithTicker
	log      *slog.Logger
	listener net.Listener
	ready    chan struct{}

	mu     sync.Mutex
	pair   *tls.Certificate // that is shown
	next   *tls.Certificate // that is shown from nextAt on; nil: none
	nextAt time.Time
}

// New returns a server that listens already and answers nothing yet.
func New(cfg Config, hooks []Webhook, client kubernetes.Interface, c clock.WithTicker, log *slog.Logger) (*Server, error) {
	cfg = cfg.withDefaults()
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listening for webhooks on %s: %w", cfg.Listen, err)
	}
	return &Server{cfg: cfg, hooks: hooks, client: client, clock: c, log: log, listener: listener, ready: make(chan struct{})}, nil
}

// Ready is closed once the API server knows of the webhooks.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// retryPause is how long a certificate or registration that could not be written waits for the next try.
const retryPause = time.Second

// Run serves until ctx ends, and returns when everything it started has ended.
func (s *Server) Run(ctx context.Context) error {
	mux := http.NewServeMux()
	for _, h := range s.hooks {
		mux.HandleFunc("POST "+h.Path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, h) })
	}
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate() }},
	}
	var serving sync.WaitGroup
	failed := make(chan error, 1)
	serving.Go(func() {
		if err := server.ServeTLS(s.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serving webhooks: %w", err)
		}
	})
	defer serving.Wait()
	defer func() { _ = server.Close() }() // ServeTLS tells what matters

	known := false
	for {
		wait := s.cfg.Check
		switch err := s.refresh(ctx); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			s.log.Warn("Webhooks are not registered, to be tried again", "err", err)
			wait = retryPause
		case !known:
			known = true
			close(s.ready)
			s.log.Info("Webhooks are served", "address", s.listener.Addr().String())
		}
		timer := s.clock.NewTimer(wait)
		select {
		case err := <-failed:
			timer.Stop()
			return err
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

// refresh makes certificate and registration what they should be.
func (s *Server) refresh(ctx context.Context) error {
	pair, authority, err := s.ensureCertificate(ctx)
	if err != nil {
		return err
	}
	if err := s.register(ctx, authority); err != nil {
		return err
	}
	if err := s.registerPolicies(ctx); err != nil {
		return err
	}
	s.use(pair, authority)
	return nil
}

// maxReview bounds the size of a request.
const maxReview = 8 << 20

func (s *Server) serve(w http.ResponseWriter, r *http.Request, h Webhook) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
		http.Error(w, "the body is no AdmissionReview with a request", http.StatusBadRequest)
		return
	}
	answer, err := h.Answer(r.Context(), review.Request)
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: err == nil && len(answer.Problems) == 0}
	switch {
	case err != nil:
		response.Result = &metav1.Status{Message: err.Error(), Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest}
	case !response.Allowed:
		response.Result = &metav1.Status{Message: joinProblems(answer.Problems), Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}
	case len(answer.Patch) > 0:
		patch, err := json.Marshal(answer.Patch)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		kind := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = patch, &kind
	}
	w.Header().Set("Content-Type", "application/json")
	reply := admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response}
	if err := json.NewEncoder(w).Encode(reply); err != nil {
		s.log.Debug("Answer was not taken", "path", h.Path, "err", err)
	}
}

func joinProblems(problems []string) string {
	text := ""
	for i, p := range problems {
		if i > 0 {
			text += "; "
		}
		text += p
	}
	return text
}
