// SPDX-License-Identifier: Apache-2.0

package inprocess

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// User returns who a part of the process is that acts as name, a member of groups. It is what an API server makes of a user whom somebody
// impersonates: a service account that names no groups is in those that every service account is in, and everybody has been authenticated.
func User(name string, groups ...string) user.Info {
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil && len(groups) == 0 {
		groups = serviceaccount.MakeGroupNames(namespace)
	}
	groups = slices.Clip(append(slices.Clone(groups), user.AllAuthenticated)) // many requests share them
	return &user.DefaultInfo{Name: name, Groups: groups}
}

// senderKey is the key of a request's context under which its sender stands. Only a Transport can set it: a request that comes over a
// connection has a context of its own, and nothing in a request becomes part of its context.
type senderKey struct{}

func withSender(ctx context.Context, sender user.Info) context.Context {
	return context.WithValue(ctx, senderKey{}, sender)
}

// senderOf returns who has sent the request of ctx; false if it has come over a connection.
func senderOf(ctx context.Context) (user.Info, bool) {
	sender, ok := ctx.Value(senderKey{}).(user.Info)
	return sender, ok
}
