package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2 // also for a refused configuration
)

// usageError is a command line that cannot be meant.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// configError is a configuration that cannot be had, or not on this machine now;
// config's own errors are told apart by their type.
type configError struct{ error }

func (e *configError) Unwrap() error { return e.error }

// advised is an error whose text lacks what to do.
type advised struct {
	err    error
	advice string
}

func (e *advised) Error() string { return e.err.Error() + ": " + e.advice }
func (e *advised) Unwrap() error { return e.err }

// consequence explains what follows from the errors it is joined with; those
// decide the exit code.
type consequence string

func (e consequence) Error() string { return string(e) }

// report prints err and returns the exit code.
func (a *app) report(cmd *cobra.Command, err error) int {
	var usage *usageError
	var refused *config.Error
	var missing *configError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &refused):
		fmt.Fprintln(a.stderr, refused)
		return exitUsage
	case errors.As(err, &missing):
		a.complain(err)
		return exitUsage
	case errors.As(err, &usage) || !a.reached:
		fmt.Fprintf(a.stderr, "tenure: %s\nusage: %s\nsee:   %s --help\n", oneLine(err.Error()), cmd.UseLine(), cmd.CommandPath())
		return exitUsage
	}
	a.complain(err)
	for _, e := range joined(err) {
		if (!tenure.Refused(e) || errors.As(e, new(*operate.UnansweredError))) && !errors.As(e, new(consequence)) {
			return exitFailed
		}
	}
	return exitUsage
}

// complain prints an error, one line for each that was joined into it. What several
// questions ran into is said once.
func (a *app) complain(err error) {
	said := map[string]bool{}
	for _, e := range joined(err) {
		line := oneLine(advise(e).Error())
		if !said[line] {
			fmt.Fprintf(a.stderr, "tenure: %s\n", line)
		}
		said[line] = true
	}
}

// joined takes apart what errors.Join put together.
func joined(err error) []error {
	list, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	var texts []string
	for _, e := range list.Unwrap() {
		out = append(out, joined(e)...)
		texts = append(texts, e.Error())
	}
	if strings.Join(texts, "\n") != err.Error() {
		return []error{err} // it has words of its own
	}
	return out
}

// oneLine keeps an error on its line: pgx breaks them, and a handler's or a
// server's text may hold anything.
func oneLine(text string) string {
	return clean(strings.NewReplacer(":\n\t", ": ", "\n\t", ", ", "\n", "; ").Replace(strings.TrimSpace(text)))
}

// advise adds what to do to an error that does not say it.
func advise(err error) error {
	var connect *pgconn.ConnectError
	switch {
	case errors.As(err, new(*advised)), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, new(*job.KeyTakenError)):
		return &advised{err, "retry it once that job has ended, or cancel that job first"}
	case errors.Is(err, tenure.ErrUnknownTenant):
		return &advised{err, "correct --tenant; or add the tenant to the table that tenants.table asks, if there is one, else under tenants.static in the configuration, as TENANT: POOL, and type: tenure reload"}
	case errors.As(err, &connect):
		return &advised{err, "check that the database is running and that the pool's dsn is right; tenure doctor says more"}
	case errors.Is(err, context.DeadlineExceeded):
		return &advised{err, "the database is slow or cannot be reached; try again once it answers"}
	}
	return err
}

// explainAbsent adds to the error that there is no such thing what the reason may be.
func explainAbsent(err error, advice string) error {
	if err == nil || advice == "" {
		return err
	}
	parts := joined(err)
	for i, e := range parts {
		absent := errors.Is(e, tenure.ErrNotFound) || errors.Is(e, operate.ErrNoSchedule) || errors.Is(e, operate.ErrNoLimit)
		if absent && !errors.As(e, new(*operate.StateError)) { // which says all
			parts[i] = &advised{e, advice}
		}
	}
	return errors.Join(parts...)
}
