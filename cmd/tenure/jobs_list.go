package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
)

// maxLimit bounds jobs list: it holds all rows in memory, here and in the pools.
const maxLimit = 10_000

func newJobsList(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List jobs over all pools, newest first", Args: cobra.NoArgs}
	output := outputFlag(cmd)
	var f tenure.JobFilter
	flags := cmd.Flags()
	flags.StringVar(&f.State, "state", "", strings.Join(tenure.States, ", "))
	flags.StringVar(&f.Tenant, "tenant", "", "only this tenant's")
	flags.StringVar(&f.Kind, "kind", "", "only of this kind")
	flags.StringVar(&f.Queue, "queue", "", "only on this queue")
	flags.StringVar(&f.Pool, "pool", "", "only in this pool")
	flags.IntVar(&f.Limit, "limit", 100, "so many at most")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.State != "" && !slices.Contains(tenure.States, f.State) {
			return usagef("--state %q is not one of %s", f.State, strings.Join(tenure.States, ", "))
		}
		if f.Limit < 1 || f.Limit > maxLimit {
			return usagef("--limit %d: 1 to %d are allowed", f.Limit, maxLimit)
		}
		cfg, err := a.loadConfig()
		if err != nil {
			return err
		}
		if f.Pool != "" {
			if err := checkPools(cfg, f.Pool); err != nil {
				return err
			}
		}
		return a.read(cmd.Context(), cfg, func(ctx context.Context, client *tenure.Client) (unanswered, err error) {
			jobs, unanswered := client.Jobs(ctx, f)
			if len(jobs) == f.Limit {
				fmt.Fprintf(a.stderr, "tenure: there may be more than these %d: see --limit\n", f.Limit)
			}
			return unanswered, a.printJobs(*output, jobs)
		})
	}
	return cmd
}

func (a *app) printJobs(f format, jobs []tenure.JobStatus) error {
	if f == asJSON {
		out := []jsonJob{}
		for _, j := range jobs {
			out = append(out, newJSONJob(j))
		}
		return printJSON(a.stdout, out)
	}
	var rows [][]string
	for _, j := range jobs {
		rows = append(rows, []string{j.ID.String(), stateOf(j), j.Tenant, j.Kind, j.Queue, j.Pool, attempts(j), a.when(j.CreatedAt), a.detail(j)})
	}
	return printTable(a.stdout, []string{"ID", "STATE", "TENANT", "KIND", "QUEUE", "POOL", "ATTEMPTS", "CREATED", "DETAIL"}, rows)
}

// maxDetail keeps an error in its row.
const maxDetail = 60

// detail is what matters about a job in its state.
func (a *app) detail(j tenure.JobStatus) string {
	var parts []string
	if j.Node != "" {
		parts = append(parts, "on "+j.Node)
	}
	if what := atMeans[j.State]; what != "" && !j.At.IsZero() { // a claim that is not started yet has a node and no time
		parts = append(parts, what+" "+a.relative(j.At))
	}
	if j.Error != "" {
		parts = append(parts, cut(oneLine(j.Error), maxDetail))
	}
	return strings.Join(parts, ", ")
}
