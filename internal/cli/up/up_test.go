// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/drover-dev/drover/internal/standalone"
)

func TestCommandLine(t *testing.T) {
	loopback := net.IPv4(127, 0, 0, 1)
	all := []string{"*"}
	cases := map[string]struct {
		args []string
		want *Options
		err  string
	}{
		"nothing: the default directory, loopback, any port": {
			want: &Options{Dir: "/default", DefaultDir: true, BindAddress: loopback, Controllers: all},
		},
		"a directory": {
			args: []string{"--data-dir", "/d"},
			want: &Options{Dir: "/d", BindAddress: loopback, Controllers: all},
		},
		"ephemeral, in a temporary directory": {
			args: []string{"--ephemeral"},
			want: &Options{Ephemeral: true, BindAddress: loopback, Controllers: all},
		},
		"ephemeral, in a directory": {
			args: []string{"--ephemeral", "--data-dir", "/d"},
			want: &Options{Dir: "/d", Ephemeral: true, BindAddress: loopback, Controllers: all},
		},
		"everything else": {
			args: []string{
				"--bind-address", "::", "--port", "6443", "--detach", "--feature-gates", "A=true,B=false", "-v", "4",
				"--images", "/etc/../images.yaml", "--controllers", "*,-vcjob",
			},
			want: &Options{
				Dir: "/default", DefaultDir: true, BindAddress: net.IPv6unspecified, Port: 6443, Detach: true,
				FeatureGates: map[string]bool{"A": true, "B": false}, Verbosity: 4,
				Images: "/images.yaml", Controllers: []string{"*", "-vcjob"},
			},
		},
		"an address that is none": {
			args: []string{"--bind-address", "localhost"},
			err:  `reading --bind-address: "localhost" is not an IP address`,
		},
		"a controller that is none": {
			args: []string{"--controllers", "jobs"},
			err:  `--controllers: "jobs" is not known; known are job, cronjob, vcjob`,
		},
		"a gate that is neither on nor off": {
			args: []string{"--feature-gates", "A=perhaps"},
			err:  "A",
		},
		"an argument": {
			args: []string{"now"},
			err:  `unknown command "now"`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parse(t, tc.args)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || got != nil {
					t.Errorf("options %+v, error %v, want %q and nothing run", got, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(Options{}, "Streams", "Version"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

// parse runs the command below a root that has --data-dir, and returns what it would do.
func parse(t *testing.T, args []string) (*Options, error) {
	t.Helper()
	root := &cobra.Command{Use: "drover", SilenceErrors: true, SilenceUsage: true}
	flag := root.PersistentFlags().String("data-dir", "", "")
	var got *Options
	root.AddCommand(NewCommand(genericiooptions.NewTestIOStreamsDiscard(), "v1", func() (string, bool, error) {
		if *flag != "" {
			return *flag, true, nil
		}
		return "/default", false, nil
	}, func(_ context.Context, o *Options) error { got = o; return nil }))
	root.SetArgs(append([]string{"up"}, args...))
	err := root.ExecuteContext(t.Context())
	return got, err
}

func TestReadySaysWhatToTryNext(t *testing.T) {
	running := standalone.Running{
		Dir: "/d", Server: "https://127.0.0.1:6443", Kubeconfig: "/d/kubeconfig", Log: "/d/logs/drover.log",
	}
	cases := map[string]struct {
		options Options
		want    []string
	}{
		"in the default directory": {
			options: Options{DefaultDir: true},
			want:    []string{"Kubernetes answers on https://127.0.0.1:6443", "kubeconfig  /d/kubeconfig", "\n  drover kubectl get nodes\n", "Ctrl-C stops it"},
		},
		"in another one": {
			want: []string{"\n  drover --data-dir /d kubectl get nodes\n", "\n  export KUBECONFIG=/d/kubeconfig\n"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			streams, _, out, _ := genericiooptions.NewTestIOStreams()
			tc.options.Streams = streams
			term, err := newTerminal(&tc.options, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer term.close()
			term.Ready(running)
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("standard output lacks %q:\n%s", want, out)
				}
			}
		})
	}
}

func TestAStartThatTakesLongSaysThatItGoesOn(t *testing.T) {
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	term, err := newTerminal(&Options{Streams: streams}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer term.close()
	said := func() bool {
		term.mu.Lock()
		defer term.mu.Unlock()
		return strings.Contains(errOut.String(), "still starting")
	}
	for deadline := time.Now().Add(5 * quiet); !said(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing was said for %s", 5*quiet)
		}
	}
	term.Ready(standalone.Running{})
	before := errOut.Len()
	term.stop() // returns once no more reminders can come
	if errOut.Len() != before {
		t.Error("a plane that is ready is said to start")
	}
}

func TestStoppedCountsWhatGoesOn(t *testing.T) {
	for count, want := range map[int]string{
		0: "Stopped\n",
		1: "Stopped. 1 pod goes on running; the next \"drover up\" takes it on\n",
		2: "Stopped. 2 pods go on running; the next \"drover up\" takes them on\n",
	} {
		streams, _, _, errOut := genericiooptions.NewTestIOStreams()
		term, err := newTerminal(&Options{Streams: streams}, nil)
		if err != nil {
			t.Fatal(err)
		}
		term.Stopped(count)
		term.close()
		if got := errOut.String(); got != want {
			t.Errorf("%d pods: %q, want %q", count, got, want)
		}
	}
}
