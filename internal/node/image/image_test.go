// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLookup(t *testing.T) {
	table := append(Table{
		{Names: []string{"team/tool-*"}, Root: "/srv/tool", Cmd: []string{"tool"}},
	}, Defaults()...)
	cases := map[string]struct {
		name string
		want []string // command of a container that names none
		root string
	}{
		"a bare name":                        {name: "busybox", want: []string{"sh"}},
		"a tag plays no part":                {name: "busybox:1.28", want: []string{"sh"}},
		"a registry and a digest play none":  {name: "registry.k8s.io:5000/e2e-test-images/busybox@sha256:3fbc632167424a6d997e74f52b878d7cc478225cffac6bc977eedfe51c7f4e79", want: []string{"sh"}},
		"a user's entry goes first":          {name: "ghcr.io/team/tool-x:v1", want: []string{"tool"}, root: "/srv/tool"},
		"a user's entry needs all its parts": {name: "tool-x"},
		"an unknown image has no command":    {name: "registry.example/app/server:v2"},
		"a name that only looks similar":     {name: "busybox-builder"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			image, found, err := table.Lookup(tc.name)
			if err != nil {
				t.Fatal(err)
			}
			if found != (tc.want != nil) {
				t.Errorf("found = %t", found)
			}
			if diff := cmp.Diff(tc.want, image.Command(nil, nil)); diff != "" {
				t.Errorf("command (-want +got):\n%s", diff)
			}
			if image.Root != tc.root {
				t.Errorf("root = %q, want %q", image.Root, tc.root)
			}
		})
	}
	if _, _, err := table.Lookup("No Such Name"); !errors.Is(err, ErrInvalidName) {
		t.Errorf("error for an impossible name = %v, want ErrInvalidName", err)
	}
}

func TestCommand(t *testing.T) {
	image := Image{Entrypoint: []string{"entry"}, Cmd: []string{"cmd"}}
	cases := map[string]struct{ command, args, want []string }{
		"nothing given":              {want: []string{"entry", "cmd"}},
		"args replace cmd":           {args: []string{"a"}, want: []string{"entry", "a"}},
		"a command replaces both":    {command: []string{"c"}, want: []string{"c"}},
		"a command and args as well": {command: []string{"c"}, args: []string{"a"}, want: []string{"c", "a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, image.Command(tc.command, tc.args)); diff != "" {
				t.Errorf("command (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateNamesEveryProblem(t *testing.T) {
	err := Table{{Root: "x"}, {Names: []string{"["}, Env: []string{"A"}}}.Validate()
	want := "images[0]: names are missing\nimages[0]: root \"x\" is not absolute\nimages[1]: \"[\" is no pattern\nimages[1]: env \"A\" is not NAME=value"
	if err == nil || err.Error() != want {
		t.Errorf("Validate() = %v, want:\n%s", err, want)
	}
	if err := Defaults().Validate(); err != nil {
		t.Errorf("the default table: %v", err)
	}
}

func TestAgnhostRefusesWhatItCannotDo(t *testing.T) {
	image, _, err := Defaults().Lookup("registry.k8s.io/e2e-test-images/agnhost:2.53")
	if err != nil {
		t.Fatal(err)
	}
	args := image.Command(nil, []string{"netexec", "--http-port=80"})
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if want := "agnhost: command netexec is not available without its image\n"; err == nil || string(out) != want {
		t.Errorf("output %q, error %v; want %q and a failure", out, err, want)
	}
}

func TestLoadReadsATableAndNamesWhatIsWrong(t *testing.T) {
	cases := map[string]struct {
		text string
		want Table
		err  string
	}{
		"a table": {
			text: "images:\n- names: [team/tool]\n  root: /srv/tool\n  entrypoint: [/bin/tool]\n",
			want: Table{{Names: []string{"team/tool"}, Root: "/srv/tool", Entrypoint: []string{"/bin/tool"}}},
		},
		"nothing":                    {text: ""},
		"a field that is misspelled": {text: "images:\n- name: tool\n", err: `unknown field "images[0].name"`},
		"a root that is relative":    {text: "images:\n- names: [tool]\n  root: srv\n", err: `images[0]: root "srv" is not absolute`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "images.yaml")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := Load(file)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %s", err, c.err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}
