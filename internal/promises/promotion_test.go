package promises_test

import (
	"context"
	"hash/fnv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/tenancy"
)

// enduring is a job in a transaction whose first run lasts until it is cancelled.
type enduring struct{}

func (enduring) Kind() string { return "enduring" }

// A standby is promoted while the primary stays up, and half of the nodes stay on that:
// what they did there would be lost. They hear from the others that it was replaced, and
// stop within seconds.
func TestP2AnOldPrimaryIsLeft(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Options{Settings: map[string]string{"synchronous_commit": "on"}})
	b := newTestbedOn(t, server, 1, 1)
	standby := pgtest.Standby(t, server) // it stops after the nodes
	starts, cancelled, over := make(chan struct{}, 10), make(chan error, 10), make(chan struct{})
	var runs atomic.Int32
	registry := b.registry(nil)
	tenure.HandleTx(registry, func(ctx context.Context, _ pgx.Tx, _ *job.Job[enduring]) error {
		starts <- struct{}{}
		if runs.Add(1) > 1 {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-over:
		}
		cancelled <- context.Cause(ctx)
		return ctx.Err()
	})
	onA, toA := b.behind(b.gossiping("a"), "p1")
	a := b.start(onA, registry)
	a.holds("p1")
	onB, toB := b.behind(b.gossiping("b", a.Self().Addr), "p1")
	other := b.start(onB, registry)
	a.meet(2)
	ctx := tenancy.For(t.Context(), "t1")
	t.Cleanup(func() { close(over) }) // before the nodes stop
	_, err := a.Client().Enqueue(ctx, enduring{})
	require.NoError(t, err)
	receive(t, starts)

	promoted, err := pgxpool.New(t.Context(), standby.DSN("p1"))
	require.NoError(t, err)
	defer promoted.Close()
	var ok bool
	require.NoError(t, promoted.QueryRow(t.Context(), "SELECT pg_promote()").Scan(&ok))
	require.True(t, ok)
	require.NoError(t, toB.SetServer(standby.DSN("p1")))

	require.Eventually(t, func() bool { return b.log.says("databases that were replaced") }, patience, time.Millisecond)
	heard := time.Now()
	require.Eventually(t, func() bool { return len(cancelled) > 0 && !a.Locks()[0].Holding }, 5*time.Second, time.Millisecond)
	require.ErrorContains(t, <-cancelled, "was replaced")
	t.Logf("left after %v", time.Since(heard))
	_, err = a.Client().Enqueue(ctx, plain{N: 1})
	require.ErrorContains(t, err, "its DSN leads to a primary that was replaced (timeline 1; b-")
	web, err := tenure.NewClient(b.named("web")) // which nobody tells
	require.NoError(t, err)
	require.NoError(t, web.Start(t.Context()))
	defer func() { require.NoError(t, web.Stop(context.WithoutCancel(t.Context()))) }()
	_, err = web.Enqueue(ctx, plain{N: 1})
	require.NoError(t, err)
	_, err = other.Client().Enqueue(ctx, plain{N: 2})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the job that a ran, and the one just enqueued
		var done int
		return promoted.QueryRow(t.Context(), "SELECT count(*) FROM tenure.completed_job").Scan(&done) == nil && done == 2
	}, patience, 10*time.Millisecond)
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.completed_job"), "nothing more is done on the old primary")

	require.NoError(t, toA.SetServer(standby.DSN("p1")))
	require.Eventually(t, func() bool { // a works where b does
		_, err := a.Client().Enqueue(ctx, plain{N: 3})
		return err == nil
	}, patience, 50*time.Millisecond)
	a.stop() // while the server is there
	other.stop()
}

// Any member may send, and in any name. Nothing it says of a promotion takes a pool away
// that no node confirms.
func TestP9AForgedPromotionTakesNoPool(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	a := b.start(b.gossiping("a"), b.registry(nil))
	a.holds("p1")
	other := b.start(b.gossiping("b", a.Self().Addr), b.registry(nil))
	a.meet(2)
	forger, err := membership.New(*b.gossiping("forger", a.Self().Addr).Cluster, membership.Self{Node: "forger", Role: membership.RoleNode}, b.log.logger("forger"))
	require.NoError(t, err)
	const promotions, question, voucher = 7, 8, 9
	asked := make(chan []byte, 1000)
	forger.Handle(question, func(from string, q []byte) error {
		if from == a.Self().Name {
			asked <- q
		}
		return nil
	})
	require.NoError(t, forger.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, forger.Stop(context.Background())) })
	a.meet(3)

	epoch := func() (n int) { return b.count("p1", "SELECT epoch FROM tenure.acquire_lock") }
	before := epoch()
	rumour := append(clusterIDOf(b, "p1"), 0, 0, 0, 2) // timeline 2
	nodes := []*running{a, other}
	ctx, enqueued := tenancy.For(t.Context(), "t1"), 0
	works := func(until func() bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			for _, n := range nodes {
				_, err := n.Client().Enqueue(ctx, plain{N: enqueued})
				require.NoError(t, err)
				enqueued++
			}
			return until()
		}, patience, 20*time.Millisecond)
	}
	for _, n := range nodes {
		require.Eventually(t, func() bool { return forger.Send(n.Self().Name, promotions, rumour) == nil }, patience, time.Millisecond)
	}
	works(func() bool { return b.log.count("no node confirms") == len(nodes) })
	require.NoError(t, forger.Send(other.Self().Name, promotions, rumour))
	require.NoError(t, forger.Send(other.Self().Name, voucher, append(receive(t, asked)[:24:24], rumour...)), "with a token that another node has made")
	works(func() bool { return b.log.count("no node confirms") == len(nodes)+1 })
	b.finished(a.Client(), enqueued)
	require.Equal(t, before, epoch(), "the lock was not lost")
	require.False(t, b.log.says("databases that were replaced"))
}

// clusterIDOf is by what members name a pool's database.
func clusterIDOf(b *testbed, pool string) []byte {
	var server string
	require.NoError(b.t, b.db[pool].QueryRow(b.t.Context(), "SELECT system_identifier::text FROM pg_control_system()").Scan(&server))
	h := fnv.New64a()
	_, _ = h.Write([]byte(server + "\x00" + pool)) // it never fails
	return h.Sum(nil)
}

// receive receives, or fails where a plain receive would hang.
func receive[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		require.Fail(t, "nothing came")
	}
	return v
}
