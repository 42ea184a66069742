// SPDX-License-Identifier: Apache-2.0

// Package startup saves the process work before main: it is imported for its effect alone, by package cli.
//
// kubectl's packages translate their help texts while they are initialised, for which the first of them unpacks and
// parses a catalogue. That takes longer than everything else a short command does until its first request (about 30 of
// 60 ms), and only kubectl's own commands show these texts. Go initialises packages in the order of their paths as far as
// imports allow, so a package that imports nothing of kubectl but the translator comes before all that use it.
package startup

import (
	"os"
	"slices"

	"k8s.io/kubectl/pkg/util/i18n"
)

// An init function is the only place early enough; see above.
func init() {
	if slices.Contains(os.Args, "kubectl") {
		return // its texts are wanted
	}
	// The error says that texts have been loaded already. Then there is nothing left to save.
	_ = i18n.SetLoadTranslationsFunc(func() error { return nil })
}
