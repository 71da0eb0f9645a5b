package routing

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store/storetest"
)

func TestGateAdmits(t *testing.T) {
	t.Parallel()
	const cost = 10 * time.Millisecond
	for _, c := range []struct {
		what              string
		entering          int
		opening           bool
		idle, total, most int
		waited            time.Duration
		want              way
	}{
		{"one is idle", 0, false, 1, 3, 9, 0, toIdle},
		{"one is idle, and one is being opened", 0, true, 1, 3, 9, 0, toIdle},
		{"one is idle, and another enters there", 1, false, 1, 3, 9, 0, refused},
		{"one is idle, and another finds out that it is dead", 1, false, 1, 3, 9, cost, toOpen},
		{"there is none", 0, false, 0, 0, 9, 0, toOpen},
		{"the first is being opened", 0, true, 0, 1, 9, time.Second, refused},
		{"none is idle", 0, false, 0, 3, 9, 0, refused},
		{"none is idle, for nearly as long as one takes", 0, false, 0, 3, 9, cost - 1, refused},
		{"none is idle, for as long as one takes", 0, false, 0, 3, 9, cost, toOpen},
		{"none is idle, and there may be no other", 0, false, 0, 9, 9, time.Second, refused},
		{"none is idle, and one is being opened", 0, true, 0, 3, 9, time.Second, refused},
	} {
		g := &gate{entering: c.entering, cost: cost, patience: time.Hour}
		if c.opening {
			g.opening = time.Now()
		}
		require.Equal(t, c.want, g.admit(c.idle, c.total, c.most, c.waited), c.what)
	}
}

// tenantsBehind returns the connections of a pool whose database is behind a proxy, for
// tenants' transactions.
func tenantsBehind(t *testing.T, conns int) (*pgxpool.Pool, *faultproxy.Proxy) {
	proxy, err := faultproxy.New(storetest.DSN(t, "main", 1))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	c := DefaultConfig()
	c.Pools = map[string]PoolConfig{"main": {DSN: proxy.DSN(), MaxConns: conns}}
	r, err := New(c, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, r.Stop(context.Background())) })
	p, _ := r.Pool("main")
	return p.Tenants(), proxy
}

// While one connection is being opened, which may take for ever, all others are served by
// those that are given back.
func TestConnectionsAreOpenedOneAtATime(t *testing.T) {
	t.Parallel()
	db, proxy := tenantsBehind(t, 20)
	db.Config().ConnConfig.Tracer.(*gate).patience = time.Hour // with a busy machine
	first, err := db.Acquire(t.Context())
	require.NoError(t, err)
	asked, goOn := make(chan struct{}, 100), make(chan struct{})
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if e.App == "tenure tenants" && e.SQL == "" { // it connects
			asked <- struct{}{}
			<-goOn
		}
		return faultproxy.Pass
	})
	const callers = 8
	patient, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	served := make(chan error, callers)
	for range callers {
		go func() {
			c, err := db.Acquire(patient)
			if err == nil {
				c.Release()
			}
			served <- err
		}()
	}
	<-asked
	first.Release()
	for i := range callers - 1 {
		if err := <-served; err != nil {
			close(goOn)
			require.NoError(t, err, "%d were served", i)
		}
	}
	require.Empty(t, asked)
	require.EqualValues(t, 1, db.Stat().ConstructingConns())
	close(goOn)
	require.NoError(t, <-served)
	require.EqualValues(t, 2, db.Stat().NewConnsCount())
}

// One who opens a connection may hang, as where the network was cut. When it is whole again
// others need not wait for that.
func TestAnOpeningThatHangs(t *testing.T) {
	t.Parallel()
	db, proxy := tenantsBehind(t, 20)
	asked, goOn := make(chan struct{}), make(chan struct{})
	var cut atomic.Bool
	cut.Store(true)
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if e.App == "tenure tenants" && e.SQL == "" && cut.Swap(false) {
			close(asked)
			<-goOn
		}
		return faultproxy.Pass
	})
	patient, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		c, err := db.Acquire(patient)
		if err == nil {
			c.Release()
		}
		served <- err
	}()
	<-asked
	c, err := db.Acquire(patient)
	close(goOn)
	require.NoError(t, err)
	c.Release()
	require.NoError(t, <-served)
}

// A connection that is closed rather than given back makes room for another, and who has
// ceased to wait keeps nobody.
func TestGateGoesOn(t *testing.T) {
	t.Parallel()
	db, _ := tenantsBehind(t, 4) // one for tenants
	first, err := db.Acquire(t.Context())
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), 5*glance)
	defer cancel()
	for range 2 {
		_, err = db.Acquire(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	next := make(chan error, 1)
	patient, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		c, err := db.Acquire(patient)
		if err == nil {
			c.Release()
		}
		next <- err
	}()
	require.NoError(t, first.Conn().Close(t.Context()))
	first.Release()
	require.NoError(t, <-next)
	require.EqualValues(t, 2, db.Stat().NewConnsCount())
}
