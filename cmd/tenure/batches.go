package main

import (
	"net/http"

	"github.com/tenurehq/tenure/internal/plural"
)

// noSuchBatch says why a batch may not be found.
const noSuchBatch = "no batch has this id: it is that of its completion job, and is kept for as long as finished jobs are"

var batchCommands = []spec{
	{
		name: "batches list", short: "List batches over all pools, newest first, with how their jobs have ended", forms: list("/batches"),
		flags:   []flag{textFlag("tenant", "only batches of this tenant").by(checked(checkTenant)), poolFlag("only batches in this pool"), limitFlag(100, "batches"), afterFlag},
		columns: "id state tenant pool jobs unfinished done dead cancelled unknown on_failure created=created_at",
	},
	{
		name: "batches show", args: "ID", short: "Show how the jobs of a batch have ended so far", forms: withID(http.MethodGet, "/batches/{id}"), absent: noSuchBatch,
		columns: "id state tenant pool on_failure jobs unfinished done dead cancelled unknown created=created_at waits_for=open closed=closed_at",
	},
	{
		name: "batches cancel", args: "ID...", short: "Cancel batches: their completion jobs, and their jobs that have not ended",
		long: "So it does with the batches whose completion jobs are among them. Jobs that wait do not start any more, and end when their turn comes; running ones end with the next\n" +
			"heartbeat of their node. Whatever interrupts the command, run it again.",
		forms: put(http.MethodPost, "/batches/{id}/cancel", "id", ""), absent: noSuchBatch,
		said: func(r *answer) string {
			var n struct{ Jobs int }
			_ = r.readInto(&n) // what cannot be read says nothing
			return "batch " + r.arg + " is cancelled, with " + plural.Count(n.Jobs, "job", "jobs") + " that had not ended; those that run are told to end"
		},
	},
}
