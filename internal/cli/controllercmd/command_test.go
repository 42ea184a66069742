// SPDX-License-Identifier: Apache-2.0

package controllercmd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// parsed returns what the flags say.
func parsed(args ...string) (*Options, error) {
	var got *Options
	cmd := NewCommand(&bytes.Buffer{}, func(_ context.Context, o *Options, _ *slog.Logger) error { got = o; return nil })
	cmd.SetArgs(args)
	err := cmd.Execute()
	return got, err
}

func TestNamespacesAreSelectedByAFlag(t *testing.T) {
	cases := map[string]struct {
		args []string
		want []string
	}{
		"all":           {nil, nil},
		"some":          {[]string{"--namespaces=a,b"}, []string{"a", "b"}},
		"one at a time": {[]string{"--namespaces=a", "--namespaces", "b"}, []string{"a", "b"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parsed(tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Controllers.Namespaces, tc.want) {
				t.Errorf("namespaces %q, want %q", got.Controllers.Namespaces, tc.want)
			}
		})
	}
}

func TestAFlagThatSelectsNothingIsWrongUsage(t *testing.T) {
	cases := map[string]struct{ args, want string }{
		"no namespace":       {"--namespaces=", "--namespaces: names none"},
		"no name":            {"--namespaces=a,B_c", `--namespaces: "B_c" is no name of a namespace`},
		"a pattern":          {"--namespaces=a,*", `--namespaces: "*" is no name of a namespace`},
		"a name with a tail": {"--namespaces=a/b", `--namespaces: "a/b" is no name of a namespace`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parsed(tc.args)
			if !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}
