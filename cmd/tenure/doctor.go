package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
)

func newDoctor(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with the databases and the nodes; exits with 0 if nothing is",
		Long: "Looks at connections, ledgers, privileges, clocks, vacuum, old transactions, replication\n" +
			"slots, locks without a holder and jobs that are stuck, and says of each finding why it matters\n" +
			"and what to type. It changes nothing. It exits with 1 if there are errors or warnings; notes are\n" +
			"about what may be meant.",
		Args: cobra.NoArgs,
	}
	var pools []string
	within := cmd.Flags().Duration("within", 5*time.Second, "how long each pool may take; all are asked at the same time")
	cmd.Flags().StringArrayVar(&pools, "pool", nil, "only this `pool`; may be repeated (default: all)")
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *within <= 0 {
			return usagef("--within %v: must be more than 0", *within)
		}
		cfg, err := a.loadConfig(pools...)
		if err != nil {
			return err
		}
		found, err := tenure.Examine(cmd.Context(), cfg, *within, pools...)
		if err != nil {
			return err
		}
		if *output == asJSON {
			err = printJSON(a.stdout, found)
		} else {
			err = printFindings(a.stdout, found)
		}
		if err == nil && !found.Healthy() {
			err = errUnhealthy
		}
		return err
	}
	return cmd
}

// errUnhealthy is why tenure doctor exits with 1.
var errUnhealthy = errors.New("there is something to mend: do what it says, and run this again")

// printFindings prints findings for people: one after another, as their texts are long.
func printFindings(w io.Writer, e tenure.Examination) error {
	var b strings.Builder
	for _, f := range e.Findings {
		severity := paint(w, colours[string(f.Severity)], strings.ToUpper(string(f.Severity)))
		where := f.Where()
		if where != f.Check {
			where += ": " + f.Check
		}
		fmt.Fprintf(&b, "%s  %s: %s\n  why:  %s\n  mend: %s\n\n", severity, where, clean(f.Text()), clean(f.Why), clean(f.Mend))
	}
	b.WriteString(e.Summary())
	_, err := fmt.Fprintln(w, b.String())
	return err
}
