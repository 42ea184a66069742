// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	. "github.com/drover-dev/drover/internal/cli/clitest"
	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/workload"
)

// parse returns the options that a command line gives.
func parse(b *Bench, args ...string) (*Options, error) {
	var got *Options
	cmd := NewCommand(b.Factory, func(_ context.Context, o *Options) error {
		got = o
		return nil
	})
	cmd.SetArgs(append([]string{}, args...))
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SilenceErrors = true
	err := cmd.Execute()
	return got, err
}

func TestFlags(t *testing.T) {
	ref := workload.Ref{Kind: workload.Lookup("job"), Name: "pi"}
	yes, no := true, false
	cases := map[string]struct {
		args []string
		want Options
		err  string
	}{
		"a name":          {args: []string{"pi"}, want: Options{Ref: ref, Tail: -1}},
		"everything else": {args: []string{"job/pi", "-f", "--index", "1,2", "--index=5", "-c", "main", "--all", "--failed", "--tail", "0", "--since=1m", "--timestamps", "--prefix"}, want: Options{Ref: ref, Follow: true, Indexes: []int{1, 2, 5}, Container: "main", All: true, Failed: true, Since: time.Minute, Timestamps: true, Prefix: &yes}},
		"no prefix":       {args: []string{"pi", "--prefix=false"}, want: Options{Ref: ref, Tail: -1, Prefix: &no}},
		"nobody":          {err: "logs takes one NAME or TYPE/NAME, but there are 0"},
		"two":             {args: []string{"a", "b"}, err: "logs takes one NAME or TYPE/NAME, but there are 2"},
		"a wrong type":    {args: []string{"pod/x"}, err: `"pod/x" has an unknown type "pod": known are jobs, cronjobs, vcjobs, cronvcjobs, jobflows`},
		"a wrong index":   {args: []string{"pi", "--index=-1"}, err: "--index [-1]: they start at 0"},
		"a wrong while":   {args: []string{"pi", "--since=-1m"}, err: "--since -1m0s: it cannot be negative"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parse(New(), tc.args...)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err || command.CodeOf(err) != command.ExitUsage {
					t.Errorf("error %v, exit code %d; want %s, %d", err, command.CodeOf(err), tc.err, command.ExitUsage)
				}
				return
			}
			if err != nil {
				t.Fatalf("parsing: %v", err)
			}
			same := cmp.Comparer(func(a, b *workload.Kind) bool { return a.Name == b.Name })
			if diff := cmp.Diff(&tc.want, got, cmpopts.IgnoreFields(Options{}, "Factory"), same); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

// node holds the logs of a cluster: "pod/container" and "pod/container previous". Each answer is used once, the last
// for ever. It is safe for concurrent use.
type node struct {
	mu   sync.Mutex
	logs map[string][]answer
	asks []string
}

// answer is one answer to a request for a log.
type answer struct {
	text string
	err  error                     // of opening
	then error                     // of reading, after text; nil means the end
	till func(ctx context.Context) // the log goes on, with nothing more, until this returns
}

func (n *node) open(ctx context.Context, namespace, pod string, opts *corev1.PodLogOptions) (io.ReadCloser, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := pod + "/" + opts.Container
	if opts.Previous {
		key += " previous"
	}
	ask := key
	if opts.Follow {
		ask += " follow"
	}
	if opts.TailLines != nil {
		ask += fmt.Sprintf(" tail=%d", *opts.TailLines)
	}
	if opts.SinceSeconds != nil {
		ask += fmt.Sprintf(" since=%ds", *opts.SinceSeconds)
	}
	if opts.SinceTime != nil {
		ask += " since=" + opts.SinceTime.UTC().Format(time.TimeOnly)
	}
	n.asks = append(n.asks, ask)
	answers := n.logs[key]
	if len(answers) == 0 {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, pod)
	}
	a := answers[0]
	if len(answers) > 1 {
		n.logs[key] = answers[1:]
	}
	if a.err != nil {
		return nil, a.err
	}
	return &stream{ctx: ctx, Reader: strings.NewReader(a.text), answer: a}, nil
}

// stream reads an answer.
type stream struct {
	ctx context.Context
	io.Reader
	answer
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF {
		if s.till != nil {
			s.till(s.ctx)
		}
		if s.ctx.Err() != nil {
			return n, s.ctx.Err()
		}
		if s.then != nil {
			return n, s.then
		}
	}
	return n, err
}

func (s *stream) Close() error { return nil }

func (n *node) requests() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.asks)
}

// log returns a node's logs from pairs of key and text.
func logsOf(pairs ...string) map[string][]answer {
	out := map[string][]answer{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = append(out[pairs[i]], answer{text: pairs[i+1]})
	}
	return out
}

func twoContainers(j *batchv1.Job) {
	always := corev1.ContainerRestartPolicyAlways
	spec := &j.Spec.Template.Spec
	spec.InitContainers = []corev1.Container{{Name: "prepare"}, {Name: "proxy", RestartPolicy: &always}}
	spec.Containers = append(spec.Containers, corev1.Container{Name: "helper"})
}

func TestShow(t *testing.T) {
	indexed := Job("render", Wanting(3, 3), Indexed())
	single := Job("pi")
	many := Job("many", twoContainers)
	unschedulable := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no room",
		}}
	}
	cases := map[string]struct {
		world []runtime.Object
		logs  map[string][]answer
		args  []string
		out   string
		err   string
		code  command.ExitCode
		asks  []string
	}{
		"one pod needs no prefix, and gets no line end that it did not print": {
			world: []runtime.Object{single, Pod(single, "pi-1", Ended(0))},
			logs:  logsOf("pi-1/main", "3.14\n159"), args: []string{"pi"},
			out: "3.14\n159", asks: []string{"pi-1/main"},
		},
		"indexes come in order, the attempts at one by age, each line with its index": {
			world: []runtime.Object{
				indexed,
				Pod(indexed, "render-2-a", Index(2), Ended(0)),
				Pod(indexed, "render-0-c", Index(0), Created(time.Minute), Ended(0)),
				Pod(indexed, "render-0-b", Index(0), Ended(1)),
				Pod(indexed, "render-1-d", Index(1), Started(0)),
			},
			logs: logsOf("render-0-b/main", "bad\n", "render-0-c/main", "good\n", "render-1-d/main", "half", "render-2-a/main", "x\n\ny\n"),
			args: []string{"render"},
			out:  "[0] bad\n[0] good\n[1] half\n[2] x\n[2] \n[2] y\n",
			asks: []string{"render-0-b/main", "render-0-c/main", "render-1-d/main", "render-2-a/main"},
		},
		"one index": {
			world: []runtime.Object{
				indexed, Pod(indexed, "render-0-b", Index(0), Ended(0)), Pod(indexed, "render-1-d", Index(1), Ended(0)),
			},
			logs: logsOf("render-1-d/main", "one\n"), args: []string{"render", "--index", "1", "--prefix=false"},
			out: "one\n", asks: []string{"render-1-d/main"},
		},
		"retries of a single pod have their names": {
			world: []runtime.Object{single, Pod(single, "pi-1", Ended(1)), Pod(single, "pi-2", Created(time.Second), Ended(0))},
			logs:  logsOf("pi-1/main", "oops\n", "pi-2/main", "3.14\n"), args: []string{"pi"},
			out: "[pi-1] oops\n[pi-2] 3.14\n", asks: []string{"pi-1/main", "pi-2/main"},
		},
		"only what failed": {
			world: []runtime.Object{single, Pod(single, "pi-1", Ended(1)), Pod(single, "pi-2", Created(time.Second), Ended(0))},
			logs:  logsOf("pi-1/main", "oops\n"), args: []string{"pi", "--failed"},
			out: "oops\n", asks: []string{"pi-1/main"},
		},
		"a run that failed before a restart counts as failed": {
			world: []runtime.Object{single, Pod(single, "pi-1", Started(2))},
			logs:  logsOf("pi-1/main previous", "oops\n"), args: []string{"pi", "--failed"},
			out: "oops\n", asks: []string{"pi-1/main previous"},
		},
		"nothing has failed": {
			world: []runtime.Object{single, Pod(single, "pi-1", Ended(0))}, args: []string{"pi", "--failed"},
			err: "None of its 1 pods has failed.\n",
		},
		"several containers have their names": {
			world: []runtime.Object{many, Pod(many, "many-1", Ended(0))},
			logs:  logsOf("many-1/main", "m\n", "many-1/helper", "h\n"), args: []string{"many"},
			out: "[many-1/main] m\n[many-1/helper] h\n", asks: []string{"many-1/main", "many-1/helper"},
		},
		"one container": {
			world: []runtime.Object{many, Pod(many, "many-1", Ended(0))},
			logs:  logsOf("many-1/proxy", "p\n"), args: []string{"many", "-c", "proxy"},
			out: "p\n", asks: []string{"many-1/proxy"},
		},
		"all containers and all runs of which there are logs": {
			world: []runtime.Object{many, Pod(many, "many-1", Started(1))},
			logs: logsOf("many-1/prepare previous", "i0\n", "many-1/prepare", "i1\n", "many-1/proxy previous", "p0\n", "many-1/proxy", "p1\n",
				"many-1/main previous", "m0\n", "many-1/main", "m1\n", "many-1/helper previous", "h0\n", "many-1/helper", "h1\n"),
			args: []string{"many", "--all"},
			out: "[many-1/prepare] i0\n[many-1/prepare] i1\n[many-1/proxy] p0\n[many-1/proxy] p1\n" +
				"[many-1/main] m0\n[many-1/main] m1\n[many-1/helper] h0\n[many-1/helper] h1\n",
			asks: []string{
				"many-1/prepare previous", "many-1/prepare", "many-1/proxy previous", "many-1/proxy",
				"many-1/main previous", "many-1/main", "many-1/helper previous", "many-1/helper",
			},
		},
		"a container between two runs still has the log of the last": {
			world: []runtime.Object{single, Pod(single, "pi-1", Started(1), func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
			})},
			logs: logsOf("pi-1/main", "oops\n"), args: []string{"pi"},
			out: "oops\n", asks: []string{"pi-1/main"},
		},
		"the end of each log": {
			world: []runtime.Object{single, Pod(single, "pi-1", Ended(0))},
			logs:  logsOf("pi-1/main", "x\n"), args: []string{"pi", "--tail", "5", "--since", "1500ms"},
			out: "x\n", asks: []string{"pi-1/main tail=5 since=2s"},
		},
		"a log that is lost does not keep the others from being shown": {
			world: []runtime.Object{
				indexed, Pod(indexed, "render-0-b", Index(0), Ended(0)), Pod(indexed, "render-1-d", Index(1), Ended(0)),
			},
			logs: logsOf("render-1-d/main", "one\n"), args: []string{"render"},
			out:  "[1] one\n",
			err:  "Error: reading the logs of job.batch/render in namespace \"default\": container \"main\" of pod \"render-0-b\": pods \"render-0-b\" not found\n",
			code: command.ExitFailed, asks: []string{"render-0-b/main", "render-1-d/main"},
		},
		"a Job without pods": {
			world: []runtime.Object{single}, args: []string{"pi"},
			err: "Error: reading the logs of job.batch/pi in namespace \"default\": it has no pods\n" +
				"Try: drover logs -f pi   waits for them\nTry: drover kubectl describe job/pi   says why\n", code: command.ExitFailed,
		},
		"a pod that has not started": {
			world: []runtime.Object{single, Pod(single, "pi-1", unschedulable)}, args: []string{"pi"},
			err: "Error: reading the logs of job.batch/pi in namespace \"default\": no container has started yet; pod \"pi-1\": Unschedulable: no room\n" +
				"Try: drover logs -f pi   waits for it\n", code: command.ExitFailed,
		},
		"an index that is not there": {
			world: []runtime.Object{indexed, Pod(indexed, "render-0-b", Index(0), Ended(0))}, args: []string{"render", "--index", "7"},
			err: "Error: reading the logs of job.batch/render in namespace \"default\": none of its 1 pods has index [7]\n", code: command.ExitFailed,
		},
		"a container that is not there": {
			world: []runtime.Object{single, Pod(single, "pi-1", Ended(0))}, args: []string{"pi", "-c", "mian"},
			err: "Error: reading the logs of job.batch/pi in namespace \"default\": its pods have no container \"mian\"\n", code: command.ExitFailed,
		},
		"a Job that is not there": {
			world: []runtime.Object{single}, args: []string{"pie"},
			err:  "Error: reading the logs of job.batch/pie in namespace \"default\": not found\nDid you mean pi?\n",
			code: command.ExitDeleted,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bench := New(tc.world...)
			o, err := parse(bench, tc.args...)
			if err != nil {
				t.Fatalf("parsing: %v", err)
			}
			n := &node{logs: tc.logs}
			o.Open = n.open
			want := fmt.Sprintf("-- standard output --\n%s-- standard error --\n%s-- exit code %d --\n", tc.out, tc.err, tc.code)
			if diff := cmp.Diff(want, bench.Transcript(Run(t.Context(), o))); diff != "" {
				t.Errorf("transcript (-want +got):\n%s", diff)
			}
			asks := n.requests()
			slices.Sort(asks) // they overlap
			slices.Sort(tc.asks)
			if diff := cmp.Diff(tc.asks, asks, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// broken is a standard output that nobody reads any more.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestShowEndsWhenNobodyReads(t *testing.T) {
	job := Job("render", Wanting(100, 100), Indexed())
	world := []runtime.Object{job}
	n := &node{logs: map[string][]answer{}}
	for i := range 100 {
		name := fmt.Sprintf("render-%d", i)
		world = append(world, Pod(job, name, Index(i), Ended(0)))
		n.logs[name+"/main"] = []answer{{text: "x\n"}}
	}
	bench := New(world...)
	bench.Streams.Out = broken{}
	o, err := parse(bench, "render")
	if err != nil {
		t.Fatalf("parsing: %v", err)
	}
	o.Open = n.open
	if err := Run(t.Context(), o); !errors.Is(err, errOutput) {
		t.Errorf("error %v, want that of writing", err)
	}
	if asks := len(n.requests()); asks > aheadOfReader+1 {
		t.Errorf("%d logs were opened for nobody", asks)
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	huge := strings.Repeat("y", longestLine+100<<10)
	cases := map[string]struct {
		in   string
		want []string
	}{
		"nothing":                          {"", nil},
		"lines with their ends":            {"a\n\nb\n", []string{"a\n", "\n", "b\n"}},
		"a last line without an end":       {"a\nb", []string{"a\n", "b"}},
		"a line longer than the buffer":    {long + "\nb\n", []string{long + "\n", "b\n"}},
		"a line too long to keep together": {huge + "\n", []string{huge[:longestLine], huge[longestLine:] + "\n"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			err := lines(strings.NewReader(tc.in), func(line []byte, _ bool) error {
				got = append(got, string(line))
				return nil
			})
			if err != nil {
				t.Errorf("reading: %v", err)
			}
			if strings.Join(got, "") != tc.in {
				t.Errorf("%d bytes of %d came back", len(strings.Join(got, "")), len(tc.in))
			}
			if len(got) != len(tc.want) {
				t.Fatalf("%d lines, want %d", len(got), len(tc.want))
			}
			for i := range got {
				if len(got[i]) != len(tc.want[i]) {
					t.Errorf("line %d has %d bytes, want %d", i, len(got[i]), len(tc.want[i]))
				}
			}
		})
	}
}

func TestOutputKeepsLinesOfSeveralLogsApart(t *testing.T) {
	bench := New()
	out := newOutput(bench.Factory, true)
	job := Job("x", Wanting(20, 20), Indexed())
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			s := source{pod: Pod(job, "x", Index(i)), container: "main", alone: true}
			text := strings.Repeat(fmt.Sprintf("line of %d\n", i), 200)
			if err := out.copy(s, iotestOneByte(text)); err != nil {
				t.Errorf("copying: %v", err)
			}
		})
	}
	wg.Wait()
	counts := map[string]int{}
	for line := range strings.Lines(bench.Out.String()) {
		counts[line]++
	}
	want := map[string]int{}
	for i := range 20 {
		want[fmt.Sprintf("[%d] line of %d\n", i, i)] = 200
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// iotestOneByte returns a reader that gives little at a time, as a connection may.
func iotestOneByte(text string) io.Reader { return &dribble{r: bytes.NewReader([]byte(text))} }

type dribble struct{ r io.Reader }

func (d *dribble) Read(p []byte) (int, error) { return d.r.Read(p[:min(len(p), 7)]) }

func TestHeadsAreColouredOnTerminals(t *testing.T) {
	job := Job("x", Wanting(2, 2), Indexed())
	out := &output{prefix: true, colour: true}
	one := out.head(source{pod: Pod(job, "x-1", Index(1)), alone: true})
	two := out.head(source{pod: Pod(job, "x-2", Index(2)), alone: true})
	if want := "\x1b[33m[1]\x1b[0m "; one != want {
		t.Errorf("head %q, want %q", one, want)
	}
	if one[:5] == two[:5] {
		t.Errorf("neighbours have the same colour: %q and %q", one, two)
	}
	named := out.head(source{pod: Pod(Job("y"), "y-abcde"), container: "main"})
	if !strings.Contains(named, "[y-abcde/main]") {
		t.Errorf("head %q does not name pod and container", named)
	}
}
