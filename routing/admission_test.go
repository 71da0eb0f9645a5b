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

func TestAdmissionDecides(t *testing.T) {
	t.Parallel()
	const cost = 10 * time.Millisecond
	for _, c := range []struct {
		what              string
		entering          int
		opening           bool
		idle, total, most int
		waited            time.Duration
		want              destination
	}{
		{"one is idle", 0, false, 1, 3, 9, 0, toIdle},
		{"one is idle, and one is being opened", 0, true, 1, 3, 9, 0, toIdle},
		{"one is idle, and another enters there", 1, false, 1, 3, 9, 0, notYet},
		{"one is idle, and another finds out that it is dead", 1, false, 1, 3, 9, cost, toOpen},
		{"there is none", 0, false, 0, 0, 9, 0, toOpen},
		{"the first is being opened", 0, true, 0, 1, 9, time.Second, notYet},
		{"none is idle", 0, false, 0, 3, 9, 0, notYet},
		{"none is idle, for nearly as long as one takes", 0, false, 0, 3, 9, cost - 1, notYet},
		{"none is idle, for as long as one takes", 0, false, 0, 3, 9, cost, toOpen},
		{"none is idle, and there may be no other", 0, false, 0, 9, 9, time.Second, notYet},
		{"none is idle, and one is being opened", 0, true, 0, 3, 9, time.Second, notYet},
	} {
		a := &admission{entering: c.entering, cost: cost, patience: time.Hour}
		if c.opening {
			a.opening = &ticket{since: time.Now()}
		}
		require.Equal(t, c.want, a.decide(c.idle, c.total, c.most, c.waited), c.what)
	}
}

// Where many connections of a server work, a pool does without a second one for longer, and not without its first.
func TestABusyServerIsAskedForFewConnections(t *testing.T) {
	t.Parallel()
	var working atomic.Int64
	a := &admission{mostCost: time.Second, working: &working}
	require.Equal(t, toOpen, a.decide(0, 1, 9, time.Millisecond))
	working.Store(mostWorking)
	require.Equal(t, notYet, a.decide(0, 1, 9, time.Second-1))
	require.Equal(t, toOpen, a.decide(0, 1, 9, time.Second))
	require.Equal(t, toOpen, a.decide(0, 0, 9, 0))
}

// What waits for a permit does not hang, however long it takes.
func TestAnOpeningThatWaitsIsNotDoubled(t *testing.T) {
	t.Parallel()
	a, opening := &admission{}, new(ticket)
	a.noteOpening(opening)
	require.Equal(t, toOpen, a.decide(0, 1, 9, time.Hour), "it hangs")
	a.noteWaiting(opening)
	require.Equal(t, notYet, a.decide(0, 1, 9, time.Hour))
	a.noteDialling(opening)
	require.Equal(t, toOpen, a.decide(0, 1, 9, time.Hour))
}

// behindProxy returns a pool whose database is behind a proxy.
func behindProxy(t *testing.T, conns int) (*Pool, *faultproxy.Proxy) {
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
	return p, proxy
}

// tenantsBehind returns its connections for tenants' transactions.
func tenantsBehind(t *testing.T, conns int) (*TenantConns, *faultproxy.Proxy) {
	p, proxy := behindProxy(t, conns)
	return p.Tenants(), proxy
}

// state is how many enter, and whether a connection is being opened.
func (a *admission) state() (entering int, opening bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.entering, a.opening != nil
}

// acquire has somebody get a connection, give it back and say how that went.
func acquire(ctx context.Context, db *TenantConns) <-chan error {
	done := make(chan error, 1)
	go func() {
		c, err := db.Acquire(ctx)
		if err == nil {
			c.Release()
		}
		done <- err
	}()
	return done
}

// While one connection is being opened, which may take for ever, all others are served by
// those that are given back.
func TestConnectionsAreOpenedOneAtATime(t *testing.T) {
	t.Parallel()
	db, proxy := tenantsBehind(t, 20)
	db.admission.patience = time.Hour // with a busy machine
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
		go func() { served <- <-acquire(patient, db) }()
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

// Whoever asks for a connection for jobs passes the admission, too, and waits for longer before
// another is opened.
func TestConnectionsForJobsAreOpenedOneAtATime(t *testing.T) {
	t.Parallel()
	p, _ := behindProxy(t, 20)
	first, err := p.Jobs().Acquire(t.Context())
	require.NoError(t, err)
	a := &p.conns.admission
	require.Equal(t, mostJobsCost, a.mostCost)
	require.EqualValues(t, 1, p.server.working.Load())
	a.mu.Lock()
	a.cost = time.Hour
	a.mu.Unlock()
	const callers = 8
	served := make(chan error, callers)
	for range callers {
		go func() { served <- p.Jobs().Ping(t.Context()) }()
	}
	require.Eventually(t, func() bool { return a.waiting.Load() == callers }, 10*time.Second, time.Millisecond)
	first.Release()
	for range callers {
		require.NoError(t, <-served)
	}
	require.EqualValues(t, 1, p.Jobs().Stat().NewConnsCount())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Jobs().Ping(over), context.Canceled)
	require.Zero(t, p.server.working.Load())
}

// What others might have had closed, and is left to its pool, does not count as work that has ended.
func TestWhatIsNotEvictedIsNotCounted(t *testing.T) {
	t.Parallel()
	p, _ := behindProxy(t, 20)
	require.NoError(t, p.Jobs().Ping(t.Context()))
	require.Eventually(t, func() bool { return p.Jobs().Stat().IdleConns() == 1 }, 10*time.Second, time.Millisecond)
	p.conns.admission.used.Store(int64(-time.Hour))
	p.budget.evict(t.Context())
	require.EqualValues(t, 1, p.Jobs().Stat().TotalConns())
	require.Zero(t, p.server.working.Load())
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
	served := acquire(patient, db)
	<-asked
	c, err := db.Acquire(patient)
	close(goOn)
	require.NoError(t, err)
	c.Release()
	require.NoError(t, <-served)
}

// A connection that is closed rather than given back makes room for another, and who has
// ceased to wait keeps nobody.
func TestAdmissionGoesOn(t *testing.T) {
	t.Parallel()
	db, _ := tenantsBehind(t, 4) // one for tenants
	first, err := db.Acquire(t.Context())
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), 5*recheckEvery)
	defer cancel()
	for range 2 {
		_, err = db.Acquire(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	patient, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	next := acquire(patient, db)
	require.Eventually(t, func() bool { return len(db.admission.next) == 1 }, 10*time.Second, time.Millisecond, "it waits")
	require.NoError(t, first.Conn().Close(t.Context()))
	first.Release()
	require.NoError(t, <-next)
	require.EqualValues(t, 2, db.Stat().NewConnsCount())
}

// Whether an idle connection is still good may take for ever to find out. That hides no
// other one.
func TestAConnectionThatFellSilent(t *testing.T) {
	t.Parallel()
	db, proxy := tenantsBehind(t, 5) // two for tenants
	db.admission.pingAfter = 0
	silent, err := db.Acquire(t.Context())
	require.NoError(t, err)
	good, err := db.Acquire(t.Context())
	require.NoError(t, err)
	asked, goOn := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if e.SQL == "-- ping" && !first.Swap(true) {
			close(asked)
			<-goOn
		}
		return faultproxy.Pass
	})
	silent.Release()
	served := acquire(t.Context(), db)
	<-asked
	good.Release()
	patient, cancel := context.WithTimeout(t.Context(), maxConnIdle/2) // then it would be closed, and make room
	defer cancel()
	c, err := db.Acquire(patient)
	close(goOn)
	require.NoError(t, err)
	c.Release()
	require.NoError(t, <-served)
}

// An idle connection turns out to be dead, and another is opened: as long as that takes, it
// counts as what is opened.
func TestADeadConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	db, proxy := tenantsBehind(t, 20)
	a := &db.admission
	a.pingAfter = 0
	c, err := db.Acquire(t.Context())
	require.NoError(t, err)
	c.Release()
	asked, goOn := make(chan struct{}), make(chan struct{})
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		switch {
		case e.SQL == "-- ping" && e.App == "tenure tenants":
			select {
			case <-asked:
			default:
				return faultproxy.CutBefore
			}
		case e.SQL == "" && e.App == "tenure tenants":
			close(asked)
			<-goOn
		}
		return faultproxy.Pass
	})
	served := acquire(t.Context(), db)
	<-asked
	entering, opening := a.state()
	close(goOn)
	require.NoError(t, <-served)
	require.Zero(t, entering)
	require.True(t, opening)
	_, opening = a.state()
	require.False(t, opening)
}

// What is opened for one who has ceased to wait is opened all the same, and the next one
// takes it.
func TestAnOpeningThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	db, proxy := tenantsBehind(t, 20)
	a := &db.admission
	a.patience = time.Hour
	asked, goOn := make(chan struct{}, 100), make(chan struct{})
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if e.SQL == "" && e.App == "tenure tenants" {
			asked <- struct{}{}
			<-goOn
		}
		return faultproxy.Pass
	})
	short, cancel := context.WithCancel(t.Context())
	served := acquire(short, db)
	<-asked
	cancel()
	require.ErrorIs(t, <-served, context.Canceled)
	_, opening := a.state()
	close(goOn)
	require.True(t, opening)
	c, err := db.Acquire(t.Context())
	require.NoError(t, err)
	c.Release()
	_, opening = a.state()
	require.False(t, opening)
	require.EqualValues(t, 1, db.Stat().NewConnsCount())
}

// A holder says how many connections its handlers need, and its successor opens no more of them,
// those included that it has, nor waits for one that somebody may give back.
func TestOpenAhead(t *testing.T) {
	t.Parallel()
	p, _ := behindProxy(t, 20)
	require.Zero(t, p.Handling())
	patient, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	open := func(conns int) (warmed int) {
		p.Tenants().OpenAhead(patient, conns, func(*pgxpool.Conn) { warmed++ })
		return warmed
	}
	require.Equal(t, 3, open(3))
	require.Zero(t, open(3))
	db := p.Tenants()
	require.EqualValues(t, 3, db.Stat().TotalConns())
	require.Eventually(t, func() bool { return p.Handling() == spareConns }, 10*time.Second, time.Millisecond, "none is in use")
	for range 2 {
		c, err := db.Acquire(t.Context())
		require.NoError(t, err)
		defer c.Release()
	}
	require.Equal(t, 3, p.Handling(), "it has no more")
	a := &db.admission
	a.mu.Lock()
	a.cost = time.Hour
	a.mu.Unlock()
	require.Equal(t, 2, open(4))
	require.EqualValues(t, 4, db.Stat().TotalConns())
	require.Equal(t, 2+spareConns, p.Handling())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	db.OpenAhead(ctx, 5, nil)
	require.EqualValues(t, 4, db.Stat().TotalConns())
}
