// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drover-dev/drover/internal/jobflow"
	"github.com/drover-dev/drover/internal/volcano/batch"
	"github.com/drover-dev/drover/internal/volcano/client"
	"github.com/drover-dev/drover/internal/volcano/flow"
)

// flowAPI is what a JobFlowController asks of the API server. Errors are those of client-go.
type flowAPI interface {
	// Flow reads a JobFlow from the API server itself.
	Flow(ctx context.Context, namespace, name string) (*flow.JobFlow, error)
	// StoreFlowStatus writes f.Status, provided that the stored JobFlow has f's resource version, and returns what is stored then.
	StoreFlowStatus(ctx context.Context, f *flow.JobFlow) (*flow.JobFlow, error)
	// StoreTemplateStatus does the same for a JobTemplate.
	StoreTemplateStatus(ctx context.Context, t *flow.JobTemplate) error

	// Job reads a Job from the API server itself.
	Job(ctx context.Context, namespace, name string) (*batch.Job, error)
	CreateJob(ctx context.Context, j *batch.Job) (*batch.Job, error)
	// DeleteJob deletes one Job, and no other of its name, and lets the garbage collector delete its pods.
	DeleteJob(ctx context.Context, namespace string, job jobflow.JobKey) error
}

// flowClient is the flowAPI of a real API server.
type flowClient struct{ vc *client.Client }

func (c flowClient) Flow(ctx context.Context, namespace, name string) (*flow.JobFlow, error) {
	return c.vc.JobFlows(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c flowClient) StoreFlowStatus(ctx context.Context, f *flow.JobFlow) (*flow.JobFlow, error) {
	f.APIVersion, f.Kind = flow.GroupVersion.String(), "JobFlow"
	return c.vc.JobFlows(f.Namespace).UpdateStatus(ctx, f, metav1.UpdateOptions{})
}

func (c flowClient) StoreTemplateStatus(ctx context.Context, t *flow.JobTemplate) error {
	t.APIVersion, t.Kind = flow.GroupVersion.String(), "JobTemplate"
	_, err := c.vc.JobTemplates(t.Namespace).UpdateStatus(ctx, t, metav1.UpdateOptions{})
	return err
}

func (c flowClient) Job(ctx context.Context, namespace, name string) (*batch.Job, error) {
	return c.vc.Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c flowClient) CreateJob(ctx context.Context, j *batch.Job) (*batch.Job, error) {
	return c.vc.Jobs(j.Namespace).Create(ctx, j, metav1.CreateOptions{})
}

func (c flowClient) DeleteJob(ctx context.Context, namespace string, job jobflow.JobKey) error {
	return c.vc.Jobs(namespace).Delete(ctx, job.Name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground), Preconditions: &metav1.Preconditions{UID: &job.UID},
	})
}

// prober puts questions to pods.
type prober interface {
	// Ask reports whether the answer is yes. What does not answer in time says no.
	Ask(ctx context.Context, q jobflow.Question) bool
}

// probeTimeout is how long a pod has to answer.
const probeTimeout = time.Second

// httpProber asks over the network. It follows no redirections, so that a pod cannot have others asked.
type httpProber struct {
	client http.Client
	dialer net.Dialer
}

func newHTTPProber() *httpProber {
	p := &httpProber{dialer: net.Dialer{Timeout: probeTimeout}}
	p.client = http.Client{
		Timeout:       probeTimeout,
		Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: p.dialer.DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p
}

// Ask implements prober.
func (p *httpProber) Ask(ctx context.Context, q jobflow.Question) bool {
	address := net.JoinHostPort(q.Address, strconv.Itoa(q.Port))
	if !q.HTTP {
		c, err := p.dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return false
		}
		_ = c.Close() // that it could be opened is all that was asked
		return true
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+q.Path, http.NoBody)
	if err != nil {
		return false
	}
	r.Header.Set("User-Agent", "drover-jobflow")
	if q.HeaderName != "" {
		r.Header.Set(q.HeaderName, q.HeaderValue)
		if http.CanonicalHeaderKey(q.HeaderName) == "Host" {
			r.Host = q.HeaderValue
		}
	}
	answer, err := p.client.Do(r)
	if err != nil {
		return false
	}
	_ = answer.Body.Close() // nobody reads it
	return answer.StatusCode >= http.StatusOK && answer.StatusCode < http.StatusBadRequest
}
