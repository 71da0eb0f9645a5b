package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/cmd/tenure/internal/handlers"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/encryption"
)

func newJobsShow(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show a job with its arguments, failed runs, progress, output and log lines", Args: cobra.ExactArgs(1)}
	output := outputFlag(cmd)
	reveal := cmd.Flags().Bool("reveal", false, "show encrypted arguments, and the headers and credentials of an http.request instead of ***")
	stack := cmd.Flags().Bool("stack", false, "show where the handler is of a job that runs on this machine's node, and the stacks of runs that panicked (-o json always has these)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := job.ParseID(args[0])
		if err != nil {
			return &usageError{err}
		}
		return a.act(cmd.Context(), operateLimit, func(ctx context.Context, o *operation) error {
			j, runs, err := o.Job(ctx, id)
			if err != nil {
				return notFound(err, noSuchJob)
			}
			if !*reveal {
				j.Payload = concealed(j)
			} else if j.Payload, err = o.OpenPayload(ctx, j); err != nil {
				return &advised{err, "its arguments can be shown where the configuration has its key, see encryption"}
			}
			shown := newJSONShow(j, runs)
			if *stack && j.State == "running" {
				if shown.Stack, err = askStack(ctx, o.cfg.Node, j); err != nil {
					fmt.Fprintln(a.stderr, "tenure:", oneLine(err.Error())) // the rest is worth seeing
				}
			}
			if *output == asJSON {
				return printJSON(a.stdout, shown)
			}
			return printJob(a, shown, *stack)
		})
	}
	return cmd
}

// concealed is what anybody may see of a job's arguments.
func concealed(j tenure.JobStatus) []byte {
	if encryption.IsEncrypted(j.Payload) {
		return fmt.Appendf(nil, "%q", "encrypted with key "+encryption.KeyOf(j.Payload))
	}
	return handlers.Redact(j.Kind, j.Payload)
}

// jsonRun is one failed run.
type jsonRun struct {
	Attempt int      `json:"attempt"`
	At      jsonTime `json:"at"`
	Node    string   `json:"node"`
	Error   string   `json:"error"`
	Stack   string   `json:"stack,omitempty"`
}

type jsonShow struct {
	jsonJob
	CancelAskedAt *jsonTime    `json:"cancel_asked_at,omitempty"`
	Stack         string       `json:"stack,omitempty"` // of its handler, which runs
	Runs          []jsonRun    `json:"failed_runs"`
	Reports       []jsonReport `json:"reports"`
}

func newJSONShow(j tenure.JobStatus, runs []job.RunError) jsonShow {
	out := jsonShow{jsonJob: newJSONJob(j), Runs: []jsonRun{}, Reports: newJSONReports(j.Reports)}
	if !j.CancelAsked.IsZero() {
		out.CancelAskedAt = &jsonTime{j.CancelAsked}
	}
	for _, r := range runs {
		out.Runs = append(out.Runs, jsonRun{Attempt: r.Attempt, At: jsonTime{r.At}, Node: r.Node, Error: r.Error, Stack: r.Stack})
	}
	return out
}

// atMeans says what a job's time is about, by state.
var atMeans = map[string]string{
	"running": "handed over", "scheduled": "due", "retrying": "due",
	"suspended": "suspended", "dead": "died", "done": "finished", "cancelled": "cancelled",
	"locked": "lock expires", "business_error": "ended",
}

func printJob(a *app, j jsonShow, stack bool) error {
	maxAttempts := "by its kind"
	if j.MaxAttempts > 0 {
		maxAttempts = strconv.Itoa(j.MaxAttempts)
	}
	fields := [][]string{
		{"state", stateOf(j.jsonJob)}, {"kind", j.Kind}, {"tenant", j.Tenant}, {"queue", j.Queue}, {"pool", j.Pool},
		{"priority", strconv.Itoa(int(j.Priority))},
		{"attempts", strconv.Itoa(j.Attempt)}, {"max attempts", maxAttempts}, {"losses", strconv.Itoa(j.Losses)},
		{"created", a.now.stamp(j.CreatedAt.Time)},
	}
	if j.TimeoutMs > 0 {
		fields = append(fields, []string{"timeout", (time.Duration(j.TimeoutMs) * time.Millisecond).String()})
	}
	if what := atMeans[j.State]; what != "" {
		fields = append(fields, []string{what, a.now.stamp(j.At.Time)})
	}
	if j.ResumeAt != nil {
		fields = append(fields, []string{"until", a.now.stamp(j.ResumeAt.Time)})
	}
	switch {
	case !j.StartedAt.IsZero():
		fields = append(fields, []string{"started", a.now.stamp(j.StartedAt.Time)})
	case j.State == "running":
		fields = append(fields, []string{"started", "then or later: it may wait for a worker of its node"})
	}
	if j.CancelAskedAt != nil {
		fields = append(fields, []string{"cancel asked", a.now.stamp(j.CancelAskedAt.Time) + ", and waits for its node and its handler"})
	}
	if ran := j.ran(); ran > 0 {
		fields = append(fields, []string{"ran for", ran.String()})
	}
	fields = append(fields, []string{"node", j.Node}, []string{"unique key", j.UniqueKey}, []string{"exclusive key", j.ExclusiveKey}, []string{"correlation id", j.CorrelationID}, []string{"tags", strings.Join(j.Tags, ", ")}, []string{"error", oneLine(j.Error)})
	if err := printTable(a.stdout, []string{"id", fmt.Sprint(j.ID)}, fields); err != nil {
		return err
	}
	printBlock(a.stdout, "payload", pretty(j.Payload))
	if j.Meta != nil {
		printBlock(a.stdout, "meta", pretty(j.Meta))
	}
	for _, r := range j.Reports {
		printReport(a, r)
	}
	if j.Stack != "" {
		printBlock(a.stdout, "its handler is at", j.Stack)
	}
	for _, r := range j.Runs {
		text := r.Error
		if stack && r.Stack != "" {
			text += "\n" + r.Stack
		}
		printBlock(a.stdout, fmt.Sprintf("attempt %d failed %s on %s", r.Attempt, a.now.stamp(r.At.Time), r.Node), text)
	}
	return nil
}

// askStack asks the node on this machine where a job's handler is.
func askStack(ctx context.Context, node config.Node, j tenure.JobStatus) (stack string, err error) {
	switch {
	case j.Node != node.Name:
		return "", fmt.Errorf("its handler's stack is on node %s: type this on its machine, with its configuration", j.Node)
	case node.Address() == "":
		return "", errors.New("node.listen is off, so the node cannot be asked for the handler's stack")
	}
	ctx, cancel := context.WithTimeout(ctx, stackLimit)
	defer cancel()
	there, err := newNodeClient(node)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/-/jobs/%d/stack", there.url, j.ID), nil)
	if err != nil {
		return "", err
	}
	response, err := there.client.Do(request)
	if err != nil {
		return "", fmt.Errorf("the handler's stack: ask the node at %s: %w", node.Address(), err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden {
		return "", fmt.Errorf("the handler's stack: the node at %s tells it to programs on its own machine, and answered %s", node.Address(), response.Status)
	}
	var answer struct{ Stack, Error string }
	if err := json.NewDecoder(http.MaxBytesReader(nil, response.Body, maxStack)).Decode(&answer); err != nil {
		return "", fmt.Errorf("the handler's stack: the node at %s answered %s, which cannot be read: %w", node.Address(), response.Status, err)
	}
	if answer.Error != "" {
		return "", fmt.Errorf("the handler's stack: the node at %s: %s", node.Address(), answer.Error)
	}
	return answer.Stack, nil
}

// Limits of that.
const (
	stackLimit = 5 * time.Second
	maxStack   = 16 << 20
)

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
