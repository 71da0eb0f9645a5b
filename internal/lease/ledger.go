package lease

import (
	"context"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
)

// ledger is what a completer writes to.
type ledger interface {
	write(ctx context.Context, b *batch) (lost int, err error) // lost: runs whose claim was
	report(ctx context.Context, reports []store.Reported) error
	findHeld(ctx context.Context, runs []store.Finished, claims []int64) (store.Held, error)
	spare(ctx context.Context, runs outlivedRuns) error
	noteUnwritten(ctx context.Context, why error)
}

// poolLedger is a pool's ledger, as a session writes to it.
type poolLedger struct {
	pool    *routing.Pool
	session uuid.UUID
	node    string // that it is of
	keep    bool   // finished jobs

	unwritten prometheus.Counter // tries to write ends in vain
}

func (l poolLedger) write(ctx context.Context, b *batch) (lost int, err error) {
	db := l.pool.Jobs()
	if len(b.returnJobs) > 0 {
		if err := store.ReturnUnstarted(ctx, db, l.session, b.returnClaims, b.returnJobs); err != nil {
			return 0, err
		}
	}
	if len(b.runs) == 0 && len(b.over) == 0 {
		return 0, nil
	}
	return store.Finish(ctx, db, store.Runner{Session: l.session, Node: l.node}, l.keep, b.runs, b.over)
}

func (l poolLedger) report(ctx context.Context, reports []store.Reported) error {
	return store.WriteReports(ctx, l.pool.Jobs(), l.node, reports)
}

// noteUnwritten tells the pool and the metrics that a try to write failed.
func (l poolLedger) noteUnwritten(ctx context.Context, why error) {
	l.unwritten.Inc()
	l.pool.DoubtRights(ctx, why)
}

func (l poolLedger) findHeld(ctx context.Context, runs []store.Finished, claims []int64) (store.Held, error) {
	return store.FindHeld(ctx, l.pool.Jobs(), l.session, runs, claims)
}

func (l poolLedger) spare(ctx context.Context, runs outlivedRuns) error {
	return store.Spare(ctx, l.pool.Jobs(), runs.ids, runs.turns)
}
