package routing_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/routing"
)

// severalPools is a configuration with pools on one server of the test's own.
func severalPools(t *testing.T, n int) (routing.Config, *pgxpool.Pool) {
	s := pgtest.Server(t, devpg.Options{MaxConnections: 60})
	dsn := map[string]string{}
	for i := range n {
		name := fmt.Sprintf("p%d", i+1)
		require.NoError(t, s.CreateDatabase(t.Context(), name))
		require.NoError(t, storetest.Prepare(t.Context(), s.DSN(name), name, i+1))
		dsn[name] = s.DSN(name)
	}
	c := withPools(dsn)
	for name := range c.Pools {
		c.Pools[name] = routing.PoolConfig{DSN: dsn[name], MaxConns: 10}
	}
	db, err := pgxpool.New(t.Context(), dsn["p1"])
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return c, db
}

// Many pools work at the same time within one bound, and connections that one of them
// does not use are closed for the others.
func TestBudgetIsShared(t *testing.T) {
	t.Parallel()
	const most = 4
	c, db := severalPools(t, 5)
	c.Connections.PerNode = most
	r := started(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var group sync.WaitGroup
	errs := make(chan error, 1000)
	for _, p := range r.Pools() {
		for range 6 {
			group.Go(func() {
				for range 20 {
					var n int
					errs <- p.Jobs().QueryRow(ctx, "SELECT 1 FROM pg_sleep(0.002)").Scan(&n)
				}
			})
		}
	}
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	seen := 0
	for open := true; open; {
		select {
		case <-done:
			open = false
		default:
			var n int
			require.NoError(t, db.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('tenure jobs', 'tenure tenants')").Scan(&n))
			seen = max(seen, n)
		}
	}
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.LessOrEqual(t, seen, most+1, "one may be on its way out")
	require.GreaterOrEqual(t, seen, 2)
}

func TestBudgetIsSpent(t *testing.T) {
	t.Parallel()
	c, _ := severalPools(t, 2)
	c.Connections.PerNode = 4
	r := started(t, c)
	busy, other := poolOf(t, r, "p1"), poolOf(t, r, "p2")
	for range 4 {
		conn, err := busy.Tenants().Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := other.Tenants().Acquire(ctx)
	require.Error(t, err)
	lock, err := other.ConnectLock(t.Context())
	require.NoError(t, err, "the locks' connections are not bounded")
	require.NoError(t, lock.Close(t.Context()))
}

// Who waits for a connection of the node is bounded by the own time only, not by what a connect may take; and a
// statement can be cancelled while none is left, which takes a connection for a moment.
func TestWaitingForTheBudget(t *testing.T) {
	t.Parallel()
	c, _ := severalPools(t, 2)
	c.Connections.PerNode = 4
	for name, p := range c.Pools {
		p.DSN += "&connect_timeout=1"
		c.Pools[name] = p
	}
	r := started(t, c)
	busy, other := poolOf(t, r, "p1"), poolOf(t, r, "p2")
	var held [4]*pgxpool.Conn
	for i := range held {
		var err error
		held[i], err = busy.Tenants().Acquire(t.Context())
		require.NoError(t, err)
		defer held[i].Release()
	}
	require.False(t, other.IsCrowded(), "nobody waits")
	waited := make(chan error, 1)
	go func() {
		waited <- other.Jobs().AcquireFunc(t.Context(), func(*pgxpool.Conn) error { return nil })
	}()
	require.Eventually(t, busy.IsCrowded, 10*time.Second, time.Millisecond)
	_, err := held[0].Exec(t.Context(), "SELECT pg_sleep(1.5)")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = held[0].Exec(ctx, "SELECT pg_sleep(60)")
	require.Error(t, err)
	require.False(t, held[0].Conn().IsClosed(), "the server has cancelled it: %v", err)
	for _, conn := range held {
		conn.Release()
	}
	require.NoError(t, <-waited)
}

func TestBudgetMustFitTheServer(t *testing.T) {
	t.Parallel()
	c, _ := severalPools(t, 3)
	try := func(change func(*routing.Config), opts ...routing.Option) error {
		cfg := c
		change(&cfg)
		r, err := routing.New(cfg, zap.NewNop(), opts...)
		require.NoError(t, err)
		err = r.Start(t.Context())
		require.NoError(t, r.Stop(t.Context()))
		return err
	}
	require.NoError(t, try(func(*routing.Config) {}), "3 pools of 10 fit into 57")
	require.NoError(t, try(func(c *routing.Config) { c.Connections.Nodes = 2 }, routing.OnlyEnqueue()), "a command or a client is no node")
	err := try(func(c *routing.Config) { c.Connections.Nodes = 2 })
	require.ErrorContains(t, err, "its server has room for 57 connections, and 2 nodes may open 30 each, 60 in all (pools there: ")
	require.ErrorContains(t, err, "lower max_conns to 9, set connections.per_node to 25, or raise the server's max_connections")
	require.NoError(t, try(func(c *routing.Config) { c.Connections.Nodes, c.Connections.PerNode = 2, 25 }))
	err = try(func(c *routing.Config) { c.Connections.Nodes, c.Connections.PerNode = 2, 26 })
	require.ErrorContains(t, err, "2 nodes may open 26 each, 58 in all")
}

// A server without connections left is not asked for them all the time, but soon serves
// again once it has some.
func TestAFullServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	c, db := severalPools(t, 1)
	r := started(t, c)
	p := poolOf(t, r, "p1")
	require.False(t, p.Short())
	var others []*pgx.Conn
	leave := func() {
		for _, o := range others {
			_ = o.Close(context.Background())
		}
	}
	defer func() { leave() }()
	for {
		o, err := pgx.Connect(t.Context(), c.Pools["p1"].DSN)
		if err != nil {
			require.True(t, store.NoConnectionLeft(err), "%v", err)
			break
		}
		others = append(others, o)
	}
	ask := func() error {
		var n int
		return p.Jobs().QueryRow(t.Context(), "SELECT 1").Scan(&n)
	}
	asked := 0
	for began := time.Now(); time.Since(began) < 2*time.Second; {
		err := ask()
		require.True(t, store.NoConnectionLeft(err), "%v", err)
		if !errors.Is(err, routing.ErrCrowded) {
			asked++
		}
		time.Sleep(5 * time.Millisecond)
	}
	require.Less(t, asked, 4)
	require.True(t, p.Short())
	_, err := p.ConnectLock(t.Context())
	require.NotErrorIs(t, err, routing.ErrCrowded, "a lock may hang on it")

	leave()
	require.Eventually(t, func() bool { return ask() == nil }, patience, 10*time.Millisecond)
	require.NoError(t, db.Ping(t.Context()))
}

// Fixes that the configuration would refuse are not proposed.
func TestBudgetProposesWhatIsAllowed(t *testing.T) {
	t.Parallel()
	c, _ := severalPools(t, 3)
	c.Connections.Nodes = 6
	r, err := routing.New(c, zap.NewNop())
	require.NoError(t, err)
	err = r.Start(t.Context())
	require.NoError(t, r.Stop(t.Context()))
	require.ErrorContains(t, err, "its server has room for 57 connections, and 6 nodes may open 30 each, 180 in all")
	require.ErrorContains(t, err, "set connections.per_node to 8, or raise the server's max_connections by 123")
	require.NotContains(t, err.Error(), "max_conns to")
}

// What comes into service has to fit beside what runs, so it is checked with the connections
// that the process was started with, whatever a new configuration says of them.
func TestApplyLeavesConnectionsAlone(t *testing.T) {
	t.Parallel()
	all, _ := severalPools(t, 3)
	all.Connections.Nodes = 2
	c := lacking(all, "p3")
	r := started(t, c)
	const refusal = "its server has room for 57 connections, and 2 nodes may open 30 each, 60 in all"
	const hint = "connections in the configuration differs from what this process was started with, and takes effect when it is started again"
	_, err := r.Apply(t.Context(), all)
	require.ErrorContains(t, err, refusal)
	require.NotContains(t, err.Error(), hint)
	less := all
	less.Connections.Nodes, less.Connections.PerNode = 1, 4
	_, err = r.Apply(t.Context(), less)
	require.ErrorContains(t, err, refusal)
	require.ErrorContains(t, err, hint)

	c.Connections = less.Connections
	_, err = r.Apply(t.Context(), c)
	require.NoError(t, err)
	_, err = r.Apply(t.Context(), less)
	require.ErrorContains(t, err, refusal, "nor does it hold after another change")
	require.ErrorContains(t, r.Exceeds(3), "3 nodes may open 20 each")
}

// Anyone who left connections.nodes at 1 and runs several is told when that goes too far.
func TestExceeds(t *testing.T) {
	t.Parallel()
	c, _ := severalPools(t, 2)
	r := started(t, c)
	require.NoError(t, r.Exceeds(1))
	require.NoError(t, r.Exceeds(2), "2 pools of 10 fit into 57 twice")
	require.ErrorContains(t, r.Exceeds(3), "its server has room for 57 connections, and 3 nodes may open 20 each, 60 in all (pools there: ")
}
