// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// outcome is what is known of a write after its answer.
type outcome int

const (
	done    outcome = iota // the API server has done it
	refused                // it has not, and said so
	unknown                // the answer was lost, or does not tell
)

// outcomeOf tells from the error of a write what has become of it.
func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return done
	case isWebhookFailure(err): // webhooks are asked before anything is stored
		return refused
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), apierrors.IsInternalError(err), apierrors.IsUnexpectedServerError(err):
		return unknown
	case apierrors.IsServiceUnavailable(err): // proxies also say so when they have lost the API server in the middle of a request
		return unknown
	case apierrors.ReasonForError(err) != "":
		return refused
	}
	return unknown
}

// isWebhookFailure reports whether the API server could not ask a webhook, which it says as if it had failed itself: "Internal error
// occurred: failed calling webhook …".
func isWebhookFailure(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

// isNamespaceEnding reports whether a creation was refused because its namespace is being deleted.
func isNamespaceEnding(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
