package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

// watched is a cluster under load whose locks are watched: who holds them, and how often
// they were taken.
type watched struct {
	bed    *bed
	fleet  *fleet
	client *tenure.Client
	load   *load
	conns  []*pgx.Conn // one for each pool, as to open them would disturb what is watched
}

// watchedConns is how many connections each process may open for each pool, the lock's own
// apart: more than are wanted, as closing some to open others costs more than all the rest.
const watchedConns = 12

// newWatched makes pools that write down what becomes of their locks, and nodes, of which
// none is started.
func newWatched(ctx context.Context, disk bool, pools, nodes int, profile, keep string) (*watched, error) {
	b, err := startBed(ctx, devpg.Options{Durable: true, InMemory: !disk, MaxConnections: 50 + (watchedConns+1)*pools*(nodes+1)}, pools, 3*pools)
	if err != nil {
		return nil, err
	}
	w := &watched{bed: b}
	b.cfg.Connections = routing.ConnectionsConfig{PerNode: watchedConns * pools, Nodes: nodes + 1}
	for _, pool := range b.pools {
		if err == nil { // claims are many, and not watched
			err = b.exec(ctx, pool, auditSQL+"DROP TRIGGER audit ON tenure.claim")
		}
		if err == nil {
			err = w.watch(ctx, pool)
		}
	}
	if err == nil {
		w.fleet, err = newFleet(b.cfg, nodes, profile, keep)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *watched) watch(ctx context.Context, pool string) error {
	conn, err := w.bed.connect(ctx, pool)
	if err == nil {
		w.conns = append(w.conns, conn)
	}
	return err
}

func (w *watched) close() {
	if w.client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = w.client.Stop(ctx) // its process ends anyway
	}
	if w.fleet != nil {
		w.fleet.close()
	}
	for _, conn := range w.conns {
		_ = conn.Close(context.Background()) // its server ends, too
	}
	w.bed.close()
}

// begin waits until the nodes hold every lock, none of them more than its share, so that
// nothing is left to be moved; then it begins to enqueue.
func (w *watched) begin(ctx context.Context, nodes []*node, every, took time.Duration) (err error) {
	if w.client == nil {
		if w.client, err = w.fleet.client(ctx, w.bed.cfg); err != nil {
			return err
		}
	}
	if _, err := w.untilSpread(ctx, nodes, w.share(len(nodes))); err != nil {
		return err
	}
	w.load = w.bed.load(w.client, every, func(int) job.Args { return txWork{Took: took} })
	w.load.start()
	return nil
}

// end waits until every job is done, and counts them. err is how what was watched ended.
func (w *watched) end(ctx context.Context, err error) (proof, error) {
	w.load.stop()
	if err == nil {
		err = w.load.untilDone(ctx)
	}
	if err != nil {
		return proof{}, errors.Join(err, w.load.last)
	}
	return w.load.prove(ctx)
}

// share is how many locks a node should hold at most: as the election has it, a quarter
// more than if all held equally many.
func (w *watched) share(nodes int) int {
	return (5*len(w.bed.pools) + 4*nodes - 1) / (4 * nodes)
}

// holders is how many locks each node holds by what the databases say; all: every lock
// is held by the process of a node that runs.
func (w *watched) holders(ctx context.Context) (held map[*node]int, all bool) {
	held, all = map[*node]int{}, true
	for _, l := range w.client.LockStatuses(ctx) {
		n := w.fleet.of(l.Holder)
		if l.Err != nil || n == nil || n.running().member != l.Holder {
			all = false
			continue
		}
		held[n]++
	}
	return held, all
}

// untilSpread waits until nodes hold every lock, and none of them more than some number.
// It returns how many the one with the most holds.
func (w *watched) untilSpread(ctx context.Context, nodes []*node, limit int) (most int, err error) {
	err = until(ctx, 3*time.Minute, fmt.Sprintf("the locks were not held by %d nodes, at most %d by each,", len(nodes), limit), func() (bool, error) {
		held, all := w.holders(ctx)
		most = 0
		locks := 0
		for _, n := range nodes {
			most, locks = max(most, held[n]), locks+held[n]
		}
		return all && locks == len(w.bed.pools) && most <= limit, wait(ctx, 200*time.Millisecond) // each look asks every database
	})
	return most, err
}

// taken is how often a lock was taken so far: a trigger writes down every change of a
// row of tenure.acquire_lock that gives it another holder or epoch, and a holder.
func (w *watched) taken(ctx context.Context) (n int, err error) {
	for _, conn := range w.conns {
		var here int
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM audit.event WHERE what = 'taken'").Scan(&here); err != nil {
			return 0, err
		}
		n += here
	}
	return n, nil
}
