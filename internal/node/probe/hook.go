// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeprobe "k8s.io/kubernetes/pkg/probe"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
)

// Run carries out a postStart or preStop hook and returns when it is done or ctx ends. The error says in kubelet's words what did
// not work, with the command's output; it may hold secrets and does not belong into an event.
func (p *Prober) Run(ctx context.Context, t Target, hook *corev1.LifecycleHandler) error {
	switch {
	case hook.Exec != nil:
		var out bounded
		code, err := p.exec(ctx, t.ID, hook.Exec.Command, &out)
		if err == nil && code != 0 {
			err = fmt.Errorf("command '%s' exited with %d", strings.Join(hook.Exec.Command, " "), code)
		}
		if err != nil {
			return fmt.Errorf("Exec lifecycle hook (%v) for Container %q failed - error: %w, message: %q", hook.Exec.Command, t.Container.Name, err, out.String())
		}
		return nil
	case hook.HTTPGet != nil:
		if err := p.get(ctx, t, hook.HTTPGet); err != nil {
			return fmt.Errorf("HTTP lifecycle hook (%s) for Container %q failed - error: %w", hook.HTTPGet.Path, t.Container.Name, err)
		}
		return nil
	case hook.Sleep != nil:
		if !p.sleep(ctx, time.Duration(hook.Sleep.Seconds)*time.Second) {
			return errors.New("container terminated before sleep hook finished")
		}
		return nil
	}
	return errors.New("the hook has neither exec nor httpGet nor sleep")
}

// get sends the request of a hook. Any answer will do. A server that speaks plain HTTP where HTTPS was said is asked again.
func (p *Prober) get(ctx context.Context, t Target, action *corev1.HTTPGetAction) error {
	request, err := httpprobe.NewRequestForHTTPGetAction(action, t.Container, t.PodIP, "lifecycle")
	if err != nil {
		return err
	}
	request = request.WithContext(ctx)
	err = p.send(request)
	if err != nil && request.URL.Scheme == "https" && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		request.URL.Scheme = "http"
		request.Header.Del("Authorization")
		err = p.send(request)
	}
	return err
}

func (p *Prober) send(request *http.Request) error {
	response, err := p.hooks.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxOutput))
	return errors.Join(err, response.Body.Close())
}

// hookTransport asks servers on this machine, whose certificates nobody vouches for, and never through a proxy.
func hookTransport() *http.Transport {
	return &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as kubelet does
		DisableKeepAlives: true,
		DialContext:       kubeprobe.ProbeDialer().DialContext,
	}
}
