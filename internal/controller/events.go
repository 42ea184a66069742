// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// eventSink tells users of what has happened to an object. It must not block; client-go's recorders are eventSinks.
type eventSink interface {
	Event(object runtime.Object, eventType, reason, message string)
}
