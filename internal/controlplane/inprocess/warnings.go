// SPDX-License-Identifier: Apache-2.0

package inprocess

import (
	"net/http"
	"slices"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// miscellaneous is the code of every warning of Kubernetes.
const miscellaneous = 299

// warnings are what a server has to say besides its answer. They are kept apart from the header, since whatever runs for a request may
// warn at any time, also when its handler has given up waiting for it and writes the header.
type warnings struct {
	mu    sync.Mutex
	texts []string // as they stand in a header, each once
}

// AddWarning implements warning.Recorder. A warning after the header is lost, and one that no header can hold is left out.
func (w *response) AddWarning(agent, text string) {
	header, err := utilnet.NewWarningHeader(miscellaneous, agent, text)
	if err != nil {
		return
	}
	w.warnings.mu.Lock()
	defer w.warnings.mu.Unlock()
	if text != "" && !slices.Contains(w.warnings.texts, header) {
		w.warnings.texts = append(w.warnings.texts, header)
	}
}

func (w *warnings) writeTo(h http.Header) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.texts {
		h.Add("Warning", text)
	}
}
