package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/cmd/tenure/internal/handlers"
)

func newJobsShow(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show a job with its arguments and failed runs", Args: cobra.ExactArgs(1)}
	output := outputFlag(cmd)
	reveal := cmd.Flags().Bool("reveal", false, "with the headers and credentials of an http.request, which *** stands for otherwise")
	stack := cmd.Flags().Bool("stack", false, "with the stacks of runs that panicked (-o json always has them)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args)
		if err != nil {
			return err
		}
		cfg, err := a.loadConfig()
		if err != nil {
			return err
		}
		return a.act(cmd.Context(), cfg, func(ctx context.Context, client *tenure.Client) error {
			j, runs, err := client.Job(ctx, ids[0])
			if err != nil {
				return notFound(err, "finished jobs are kept for execution.retention; see: tenure jobs list")
			}
			if !*reveal {
				j.Payload = handlers.Redact(j.Kind, j.Payload)
			}
			if *output == asJSON {
				return printJSON(a.stdout, newJSONShow(j, runs))
			}
			return a.printJob(j, runs, *stack)
		})
	}
	return cmd
}

// jsonRun is one failed run.
type jsonRun struct {
	Attempt int        `json:"attempt"`
	At      *time.Time `json:"at"`
	Node    string     `json:"node"`
	Error   string     `json:"error"`
	Stack   string     `json:"stack,omitempty"`
}

type jsonShow struct {
	jsonJob
	Runs []jsonRun `json:"failed_runs"`
}

func newJSONShow(j tenure.JobStatus, runs []tenure.RunError) jsonShow {
	out := jsonShow{jsonJob: newJSONJob(j), Runs: []jsonRun{}}
	for _, r := range runs {
		out.Runs = append(out.Runs, jsonRun{Attempt: r.Attempt, At: jsonTime(r.At), Node: r.Node, Error: r.Error, Stack: r.Stack})
	}
	return out
}

// atMeans says what a job's time is about, by state.
var atMeans = map[string]string{
	"running": "started", "scheduled": "due", "retrying": "due",
	"suspended": "suspended", "dead": "died", "done": "finished", "cancelled": "cancelled",
}

func (a *app) printJob(j tenure.JobStatus, runs []tenure.RunError, stack bool) error {
	maxAttempts := "by its kind"
	if j.MaxAttempts > 0 {
		maxAttempts = strconv.Itoa(j.MaxAttempts)
	}
	fields := [][]string{
		{"state", stateOf(j)}, {"kind", j.Kind}, {"tenant", j.Tenant}, {"queue", j.Queue}, {"pool", j.Pool},
		{"priority", strconv.Itoa(int(j.Priority))},
		{"attempts", strconv.Itoa(j.Attempt)}, {"max attempts", maxAttempts}, {"losses", strconv.Itoa(j.Losses)},
		{"created", a.when(j.CreatedAt)},
	}
	if what := atMeans[j.State]; what != "" {
		fields = append(fields, []string{what, a.when(j.At)})
	}
	fields = append(fields, []string{"node", j.Node}, []string{"unique key", j.UniqueKey}, []string{"correlation id", j.CorrelationID}, []string{"error", oneLine(j.Error)})
	if err := printTable(a.stdout, []string{"id", j.ID.String()}, fields); err != nil {
		return err
	}
	printBlock(a.stdout, "payload", pretty(j.Payload))
	if j.Meta != nil {
		printBlock(a.stdout, "meta", pretty(j.Meta))
	}
	for _, r := range runs {
		text := r.Error
		if stack && r.Stack != "" {
			text += "\n" + r.Stack
		}
		printBlock(a.stdout, fmt.Sprintf("attempt %d failed %s on %s", r.Attempt, a.when(r.At), r.Node), text)
	}
	return nil
}

// printBlock prints text of several lines below its name.
func printBlock(w io.Writer, name, text string) {
	fmt.Fprintf(w, "\n%s:\n  %s\n", clean(name), strings.ReplaceAll(cleanLines(text), "\n", "\n  "))
}

// pretty indents JSON; what is not JSON stays as it is.
func pretty(text []byte) string {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return string(text)
	}
	return b.String()
}
