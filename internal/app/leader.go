// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lease says how several processes agree on the one that works.
type Lease struct {
	Namespace, Name string
	Duration        time.Duration // a leader that is silent for so long has lost its place
	Renew           time.Duration // a leader that cannot renew for so long stops
	Retry           time.Duration // between two tries
}

// DefaultLease returns the lease of Kubernetes' own controllers, in that namespace.
func DefaultLease(namespace string) Lease {
	return Lease{Namespace: namespace, Name: "drover-controller", Duration: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second}
}

// ErrLeaderLost says that another process may be leading now. Only a new process may try again: this one cannot know what of
// its work is still under way.
var ErrLeaderLost = errors.New("lost the lease")

// RunAsLeader runs lead while this process holds the lease, and returns when ctx ends, lead returns or the lease is lost, which
// is ErrLeaderLost. When ctx ends the lease is given back once lead has returned, so that another process need not wait for it.
func RunAsLeader(ctx context.Context, l Lease, rc *rest.Config, log *slog.Logger, lead func(ctx context.Context) error) error {
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(rc), "drover-controller-lease"))
	if err != nil {
		return fmt.Errorf("connecting for the lease: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("finding out the host name for the lease: %w", err)
	}
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var leadErr error
	led := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		},
		LeaseDuration: l.Duration, RenewDeadline: l.Renew, RetryPeriod: l.Retry,
		ReleaseOnCancel: true,
		Name:            l.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(lease context.Context) {
				defer close(led)
				defer stop()
				work, cancel := context.WithCancel(lease)
				defer cancel()
				defer context.AfterFunc(ctx, cancel)()
				log.Info("Leading", "lease", l.Namespace+"/"+l.Name)
				leadErr = lead(work)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("setting up the lease: %w", err)
	}
	log.Info("Waiting for the lease", "lease", l.Namespace+"/"+l.Name)
	var abandoned atomic.Bool // ctx ended before the lease was had
	defer context.AfterFunc(ctx, func() {
		if !elector.IsLeader() {
			abandoned.Store(true)
			stop()
		}
	})()
	elector.Run(electing) // returns when the lease is lost, or at stop
	if abandoned.Load() {
		return nil
	}
	lost := electing.Err() == nil
	<-led
	if lost {
		return errors.Join(ErrLeaderLost, leadErr)
	}
	return leadErr
}
