// SPDX-License-Identifier: Apache-2.0

// Package differential runs the same histories against Kubernetes' own controllers and against ours, each on a control plane
// of its own, and compares what the two have left behind: the Jobs with their status and conditions in order, the events,
// and every pod with its labels, annotations, finalizers, owners and spec.
//
// There is no node. A history is a script under testdata that plays the user and the kubelet; script_test.go says what it
// may say. Whatever differs without being listed, with its reason, in intended_test.go is a failure, and so is what is
// listed and does not differ any more.
//
// Upstream's controllers are called as kube-controller-manager calls them. Nothing here depends on how they work inside.
//
// Start reading at TestHistories.
package differential
