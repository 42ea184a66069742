// SPDX-License-Identifier: Apache-2.0

package pick

import (
	"context"
	"fmt"

	"github.com/drover-dev/drover/internal/cli/command"
	"github.com/drover-dev/drover/internal/cli/workload"
)

// atOnce is how many objects are worked on at the same time.
const atOnce = 8

// Each calls do for every object, several at once, and prints the lines that it returns to standard output in the order
// of refs. One that goes wrong does not keep the others from being done. A single error is returned; of several each is
// printed, and an error returned that carries the exit code of the first.
func Each(ctx context.Context, f *command.Factory, refs []workload.Ref, do func(context.Context, workload.Ref) (string, error)) error {
	type result struct {
		line string
		err  error
	}
	results := make([]chan result, len(refs))
	for i := range results {
		results[i] = make(chan result, 1)
	}
	slots := make(chan struct{}, atOnce)
	go func() {
		for i, ref := range refs {
			slots <- struct{}{}
			go func() {
				line, err := do(ctx, ref)
				<-slots
				results[i] <- result{line, err}
			}()
		}
	}()
	var failures []error
	for _, r := range results {
		switch done := <-r; {
		case done.err == nil:
			_, _ = fmt.Fprintln(f.Streams.Out, done.line)
		case ctx.Err() == nil || len(failures) == 0:
			failures = append(failures, done.err)
		}
	}
	switch len(failures) {
	case 0:
		return nil
	case 1:
		return failures[0]
	}
	for _, err := range failures {
		command.Print(f, err)
	}
	return command.ExitWith(command.CodeOf(failures[0]))
}
