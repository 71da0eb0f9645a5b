package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
	"github.com/tenurehq/tenure/routing"
)

// watched is a cluster whose locks are watched: who holds them, and how often they were
// taken.
type watched struct {
	*cluster
	conns map[string]*pgx.Conn // by pool: opening them later would disturb what is watched
}

// newWatched is newCluster with pools that write down what becomes of their locks and claims.
// prepare may be nil here, too.
func newWatched(ctx context.Context, o clusterOptions, pg devpg.Options, prepare func(*bed.Bed) error) (*watched, error) {
	w := &watched{conns: map[string]*pgx.Conn{}}
	c, err := newCluster(ctx, o, pg, func(b *bed.Bed) (err error) {
		if err := b.ExecAll(ctx, report.AuditSQL); err != nil {
			return err
		}
		for _, pool := range b.Pools {
			if w.conns[pool], err = b.Connect(ctx, pool); err != nil { // ends with its server
				return err
			}
		}
		if prepare != nil {
			err = prepare(b)
		}
		return err
	})
	w.cluster = c
	return w, err
}

// watchedConns is how many connections each process may open for each pool, the lock's own
// apart: more than are wanted, as closing some to open others costs more than all the rest.
const watchedConns = 12

// newWatchedLocks is newWatched for locks alone: claims are many.
func newWatchedLocks(ctx context.Context, o clusterOptions) (*watched, error) {
	pg := devpg.Options{MaxConnections: 50 + (watchedConns+1)*o.pools*(o.nodes+1)}
	return newWatched(ctx, o, pg, func(b *bed.Bed) error {
		b.Config.Connections = routing.ConnectionsConfig{PerNode: watchedConns * o.pools, Nodes: o.nodes + 1}
		return b.ExecAll(ctx, "DROP TRIGGER audit ON tenure.claim")
	})
}

// begin waits until the nodes hold every lock, none of them more than its share, so that
// nothing is left to be moved; then it begins to enqueue.
func (w *watched) begin(ctx context.Context, nodes []*fleet.Node, every, took time.Duration) error {
	if err := w.connect(ctx); err != nil {
		return err
	}
	if _, err := w.untilSpread(ctx, nodes, w.share(len(nodes))); err != nil {
		return err
	}
	w.startLoad(every, func(int) job.Args { return fleet.TxWork{Took: took} })
	return nil
}

// share is how many locks a node should hold at most: as the election has it, a quarter
// more than if all held equally many.
func (w *watched) share(nodes int) int {
	return (5*len(w.bed.Pools) + 4*nodes - 1) / (4 * nodes)
}

// holders is which locks each node holds by what the databases say, with their epochs by
// pool; all: every lock is held by the process of a node that runs.
func (w *watched) holders(ctx context.Context) (held map[*fleet.Node]map[string]int64, all bool) {
	held, all = map[*fleet.Node]map[string]int64{}, true
	for _, l := range w.client.Operator().Pools().Locks(ctx) {
		n := w.fleet.ByMember(l.Holder)
		if l.Err != nil || n == nil || n.Running().Member != l.Holder {
			all = false
			continue
		}
		if held[n] == nil {
			held[n] = map[string]int64{}
		}
		held[n][l.Pool] = l.Epoch
	}
	return held, all
}

// untilSpread waits until nodes hold every lock, and none of them more than some number.
// It returns how many the one with the most holds.
func (w *watched) untilSpread(ctx context.Context, nodes []*fleet.Node, limit int) (most int, err error) {
	err = wait.Until(ctx, 3*time.Minute, fmt.Sprintf("the locks were not held by %d nodes, at most %d by each,", len(nodes), limit), func() (bool, error) {
		held, all := w.holders(ctx)
		most = 0
		locks := 0
		for _, n := range nodes {
			most, locks = max(most, len(held[n])), locks+len(held[n])
		}
		return all && locks == len(w.bed.Pools) && most <= limit, wait.For(ctx, 200*time.Millisecond) // each look asks every database
	})
	return most, err
}

// untilHeld is a step that waits until some of the nodes hold every lock.
func (w *watched) untilHeld(nodes []*fleet.Node) step {
	return func(ctx context.Context) error {
		_, err := w.untilSpread(ctx, nodes, len(w.bed.Pools))
		return err
	}
}

// taken is how often locks are taken in some steps.
func (w *watched) taken(ctx context.Context, steps ...step) (int, error) {
	before, err := w.countTaken(ctx)
	if err == nil {
		err = inTurn(ctx, steps...)
	}
	if err != nil {
		return 0, err
	}
	after, err := w.countTaken(ctx)
	return after - before, err
}

// countTaken is how often they were so far: a trigger writes down every change of a row of
// tenure.acquire_lock that gives it another holder or epoch, and a holder.
func (w *watched) countTaken(ctx context.Context) (n int, err error) {
	for _, conn := range w.conns {
		var here int
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM audit.event WHERE what = 'taken'").Scan(&here); err != nil {
			return 0, err
		}
		n += here
	}
	return n, nil
}
