// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// work hands the keys of q to sync, one after the other, until q is shut down. A key whose sync fails is retried.
func work(ctx context.Context, q keyQueue, sync func(ctx context.Context, key string) error, log *slog.Logger) {
	for {
		key, shutdown := q.Get()
		if shutdown {
			return
		}
		switch err := safely(ctx, key, sync); {
		case err == nil, ctx.Err() != nil:
			q.Forget(key)
		default:
			q.AddRateLimited(key)
			if errors.Is(err, errPanic) {
				log.Error("Sync panicked", "key", key, "err", err)
			} else {
				log.Warn("Sync failed, to be tried again", "key", key, "err", err, "tries", q.NumRequeues(key))
			}
		}
		q.Done(key)
	}
}

var errPanic = errors.New("panic")

// safely calls sync and turns a panic into an error, so that one object cannot stop the controller.
func safely(ctx context.Context, key string, sync func(ctx context.Context, key string) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, r, debug.Stack())
		}
	}()
	return sync(ctx, key)
}

// keyOf returns "namespace/name" of an object.
func keyOf(o interface {
	GetNamespace() string
	GetName() string
},
) string {
	return o.GetNamespace() + "/" + o.GetName()
}

// sameVersion reports whether two states of an object are the same version of it.
func sameVersion(a, b any) bool {
	ma, errA := meta.Accessor(a)
	mb, errB := meta.Accessor(b)
	return errA == nil && errB == nil && ma.GetResourceVersion() == mb.GetResourceVersion()
}

// isAsNew reports whether a is at least as new as b. Versions that cannot be compared are taken for newer.
func isAsNew(a, b metav1.Object) bool {
	c, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err != nil || c >= 0
}
