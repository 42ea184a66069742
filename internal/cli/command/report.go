// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/drover-dev/drover/internal/cli/target"
)

// Print writes err to standard error as a person reads it: what was asked, what went wrong, what to try next. Nothing is
// printed for nil, for an Exit, and for an interrupt, which needs no explanation.
func Print(f *Factory, err error) {
	if err == nil || CodeOf(err) == ExitInterrupted {
		return
	}
	quiet, ok := errors.AsType[interface {
		error
		Silent() bool
	}](err)
	if ok && quiet.Silent() {
		return
	}
	f.Printf("Error: %s\n", Text(err))
	if problem, ok := errors.AsType[*Error](err); ok && len(problem.Meant) > 0 {
		f.Printf("Did you mean %s?\n", strings.Join(problem.Meant, " or "))
	}
	for _, try := range advice(f, err) {
		f.Printf("Try: %s\n", try)
	}
}

// Text returns the error's message, without what Go's HTTP client wraps around it when a cluster cannot be reached.
func Text(err error) string {
	why := unreachable(err)
	if why == "" {
		return strings.TrimSpace(err.Error())
	}
	if problem, ok := errors.AsType[*Error](err); ok && problem.Doing != "" {
		return problem.Doing + ": " + why
	}
	return why
}

// Classify returns err with the exit code that it deserves: ExitUnreachable if no plane is running or the cluster does not
// answer, ExitUsage if the choice of a cluster contradicts itself. Errors that carry a code keep it.
func Classify(err error) error {
	if err == nil || CodeOf(err) != ExitFailed {
		return err
	}
	var code ExitCode
	_, noPlane := errors.AsType[*target.NoPlaneError](err)
	switch {
	case noPlane, unreachable(err) != "":
		code = ExitUnreachable
	case errors.Is(err, target.ErrTwoTargets):
		code = ExitUsage
	default:
		return err
	}
	classified := Error{Err: err}
	if problem, ok := errors.AsType[*Error](err); ok {
		classified = *problem
	}
	classified.Code = code
	return &classified
}

// advice returns the lines of what to try: those the error brings, else those that follow from its cause.
func advice(f *Factory, err error) []string {
	advised, ok := errors.AsType[interface {
		error
		Advice() []string
	}](err)
	if ok && len(advised.Advice()) > 0 {
		return advised.Advice()
	}
	if noPlane, ok := errors.AsType[*target.NoPlaneError](err); ok {
		if errors.Is(noPlane.Err, fs.ErrPermission) {
			return []string{"the same command as the user who started the plane, or your own plane: drover up --data-dir DIR"}
		}
		return startPlane(f)
	}
	switch {
	case unreachable(err) != "" && f.Target.IsPlane():
		return startPlane(f)
	case unreachable(err) != "":
		return []string{"drover kubectl --kubeconfig FILE cluster-info, or another --kubeconfig or --context"}
	case apierrors.IsForbidden(err):
		return []string{"drover kubectl auth can-i --list   shows what you may do in the namespace"}
	}
	return nil
}

func startPlane(f *Factory) []string {
	up := "drover up"
	if f.Target.DataDir != "" {
		up += " --data-dir " + f.Target.DataDir
	}
	return []string{
		up + "   starts a plane there",
		"--kubeconfig FILE or --context NAME   for another cluster",
	}
}

// unreachable returns why the cluster cannot be reached, or "" if err says nothing of the kind.
func unreachable(err error) string {
	address := "the cluster"
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil {
		address = op.Addr.String()
	}
	unknown, isUnknown := errors.AsType[x509.UnknownAuthorityError](err)
	dns, isDNS := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nobody listens on %s", address)
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return fmt.Sprintf("there is no way to %s", address)
	case isUnknown:
		return fmt.Sprintf("the server is not the one that the kubeconfig is for: %v", unknown)
	case isDNS:
		return fmt.Sprintf("there is no host %q", dns.Name)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Timeout() && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("%s does not answer", address)
	}
	return ""
}
