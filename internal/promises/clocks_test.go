package promises_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// apart sets a database's clock for all that asks it by name, which is all of Tenure's SQL.
const apart = `
ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO true_clock_timestamp;
CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT pg_catalog.true_clock_timestamp() + interval '%[1]s' $$;
ALTER FUNCTION pg_catalog.now() RENAME TO true_now;
CREATE FUNCTION pg_catalog.now() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT pg_catalog.true_now() + interval '%[1]s' $$`

// TestClocksFarApart: the clock of the database and those of the nodes are years apart. All
// goes on as if they were not: a job that is to start in a second does, a failure is tried
// again soon, and when a node dies its lock is taken and its jobs are taken back, not
// sooner and not later.
func TestClocksFarApart(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"26 years", "-26 years"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			b := fillTestbed(t, 1, 1, func(name string, number int) string {
				dsn := pgtest.Database(t)
				conn, err := pgx.Connect(t.Context(), dsn)
				require.NoError(t, err)
				_, err = conn.Exec(t.Context(), fmt.Sprintf(apart, by))
				require.NoError(t, err)
				require.NoError(t, conn.Close(t.Context()))
				require.NoError(t, storetest.Prepare(t.Context(), dsn, name, number))
				return dsn
			})
			require.InDelta(t, 26, b.count("p1", "SELECT abs(extract(year FROM clock_timestamp()) - $1)::int", time.Now().Year()), 1)
			runs := newRuns()
			r := job.NewRegistry()
			job.Handle(r, func(_ context.Context, j *job.Job[poison]) error {
				runs.start(j.ID)()
				return nil
			})
			job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
				runs.start(j.ID)()
				if j.Attempt == 1 && j.Args.N%4 == 0 {
					return errors.New("once")
				}
				return nil
			}, job.Retry("R2/PT0.1S"))

			dies := b.startChild(b.gossiping("dies"))
			b.eventually(1, "p1", "SELECT count(*) FROM tenure.acquire_lock WHERE holder_member = $1", dies.member)
			successor := b.start(b.gossiping("successor", dies.addr), r)
			successor.meet(2)
			c := successor.Client()
			b.many(c, 1, func(int) job.Args { return poison{By: "never"} })
			b.eventually(1, "p1", "SELECT count(*) FROM tenure.claim WHERE session_id = (SELECT holder FROM tenure.acquire_lock)")
			timer(t, 2*b.cfg.Acquire.Session.TTL)
			require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.claim c JOIN tenure.node_session s USING (session_id) WHERE s.node = 'dies'"), "it lives")
			require.Equal(t, 1, b.count("p1", "SELECT count(DISTINCT epoch) FROM tenure.acquire_lock WHERE holder_member = $1", dies.member))
			dies.kill()

			const n = 20
			b.many(c, n, func(i int) job.Args { return plain{i} })
			_, err := c.EnqueueMany(t.Context(), []tenure.Entry{{Tenant: "t1", Args: plain{1}, Options: []tenure.Option{tenure.In(time.Second)}}})
			require.NoError(t, err)
			b.finished(c, 1+n+1)
			require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE kind = 'poison' AND losses = 1"))
			starts, overlaps := runs.sum()
			require.Equal(t, 1+n+n/4+1, starts)
			require.Zero(t, overlaps)
			successor.meet(1)
		})
	}
}

// installClock gives a pool's database a clock that jump can set. Nothing may have asked
// for the time there yet: a prepared statement stays with the function that it found.
func installClock(b *testbed, pool string) {
	b.exec(pool, "CREATE TABLE public.clock_ahead (by interval); INSERT INTO public.clock_ahead VALUES ('0'); GRANT SELECT ON public.clock_ahead TO PUBLIC")
	b.exec(pool, "ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO true_clock_timestamp")
	b.exec(pool, `CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
		AS 'SELECT pg_catalog.true_clock_timestamp() + (SELECT by FROM public.clock_ahead)'`)
}

func jumpClock(b *testbed, pool string, by time.Duration) {
	b.exec(pool, "UPDATE public.clock_ahead SET by = by + $1 * interval '1 s'", by.Seconds())
}

// TestP4TheDatabasesClockJumps: by itself that makes nobody lose a lock or a session to
// another node, whatever the clock says has expired. Who then really dies is succeeded
// soon, although its lock has minutes to live by that clock.
func TestP4TheDatabasesClockJumps(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	installClock(b, "p1")
	holder := b.startChild(b.gossiping("a"))
	defer b.feed(context.WithoutCancel(t.Context()), "p1")()
	b.holder("p1", "", holder)
	runs, end := newRuns(), make(chan struct{})
	r := job.NewRegistry() // of a kind that only this node knows, so that it is given to it
	job.Handle(r, func(ctx context.Context, j *job.Job[write]) error {
		defer runs.start(j.ID)()
		<-end
		return ctx.Err()
	})
	helper := b.start(b.gossiping("b", holder.addr), r)
	b.startChild(b.gossiping("c", holder.addr))
	id, err := helper.Client().Enqueue(tenancy.For(t.Context(), "t1"), write{1})
	require.NoError(t, err)
	require.Eventually(t, func() bool { starts, _ := runs.sum(); return starts == 1 }, patience, 10*time.Millisecond)

	const (
		unharmed = "SELECT count(*) FROM tenure.acquire_lock WHERE holder_member = $1"
		dead     = "SELECT count(*) FROM tenure.node_session WHERE state = 'dead'"
	)
	for _, by := range []time.Duration{10 * time.Minute, -20 * time.Minute} {
		seen := b.log.count("the clock of the pool's database has jumped")
		jumpClock(b, "p1", by)
		require.Eventually(t, func() bool { return b.log.count("the clock of the pool's database has jumped") >= seen+2 }, patience, 10*time.Millisecond, "by the two that have a session")
		timer(t, 4*b.cfg.Acquire.Session.TTL) // in which somebody would have been thought dead
		b.flows("p1")
		require.Equal(t, 1, b.count("p1", unharmed, holder.member), "after %v", by)
		require.Zero(t, b.count("p1", dead), "after %v", by)
	}
	jumpClock(b, "p1", -10*time.Minute)
	holder.kill()
	began := time.Now()
	b.eventually(0, "p1", unharmed, holder.member)
	t.Logf("succeeded within %v", time.Since(began).Round(time.Millisecond))
	b.flows("p1")
	require.Less(t, time.Since(began), 5*time.Minute, "which is not when it expires")

	close(end)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE id = $1 AND attempt = 1 AND losses = 0", int64(id.ID))
	starts, _ := runs.sum()
	require.Equal(t, 1, starts)
}

// TestADatabasesClockIsSetBack: it is set back by an hour when a node has died, so that its
// lock and its session look alive for as long. Without gossip nobody says that it is dead.
// Another node takes its lock, and its jobs run again, within some times to live.
func TestADatabasesClockIsSetBack(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	installClock(b, "p1")
	dies := b.startChild(b.named("dies"))
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.acquire_lock WHERE holder_member = $1", dies.member)
	c := b.client(b.named("client"))
	b.many(c, 1, func(int) job.Args { return poison{By: "never"} })
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.claim")
	dies.kill()
	jumpClock(b, "p1", -time.Hour)
	began := time.Now()
	r := job.NewRegistry()
	job.Handle(r, func(context.Context, *job.Job[poison]) error { return nil })
	b.start(b.named("successor"), r)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE kind = 'poison' AND losses = 1")
	t.Logf("taken back within %v", time.Since(began).Round(time.Millisecond))
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.node_session WHERE node = 'dies' AND state = 'dead' AND expires_at > clock_timestamp()"))
}
