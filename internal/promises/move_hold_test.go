package promises_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

const addOrder = "INSERT INTO orders (id) VALUES ($1)"

// makeOrders gives a tenant a table of its own.
func makeOrders(b *testbed, pool, tenant string) {
	b.t.Helper()
	b.exec(pool, fmt.Sprintf("CREATE TABLE %s.orders (id text PRIMARY KEY)", tenant))
}

// ordersIn lists a tenant's orders.
func ordersIn(b *testbed, pool, tenant string) []string {
	b.t.Helper()
	rows, err := b.db[pool].Query(b.t.Context(), fmt.Sprintf("SELECT id FROM %s.orders ORDER BY id", tenant))
	require.NoError(b.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return ids
}

// order adds an order in a transaction of InTx.
func order(ctx context.Context, c *tenure.Client, id string) error {
	return c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, addOrder, id)
		return err
	})
}

// A process that has looked where a tenant lives writes where it has moved to.
func TestMoveIsFollowedByTransactions(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 3, 1)
	for _, p := range []string{"p2", "p3"} {
		b.prepare("t1", p)
	}
	for _, p := range []string{"p1", "p2", "p3"} {
		makeOrders(b, p, "t1")
	}
	b.exec("p3", "DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = ''repeatable read''', current_database()); END$$")
	shop, operator := b.client(b.cfg), b.client(b.named("operator"))
	ctx := tenancy.For(t.Context(), "t1")
	require.NoError(t, order(ctx, shop, "one"))
	b.move(operator, "t1", "p2")
	require.NoError(t, order(ctx, shop, "two"))
	b.move(operator, "t1", "p3")
	require.NoError(t, order(ctx, shop, "three"))
	require.Equal(t, []string{"one"}, ordersIn(b, "p1", "t1"))
	require.Equal(t, []string{"two"}, ordersIn(b, "p2", "t1"))
	require.Equal(t, []string{"three"}, ordersIn(b, "p3", "t1"))

	require.NoError(t, shop.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var isolation string
		require.NoError(t, tx.QueryRow(ctx, "SHOW transaction_isolation").Scan(&isolation))
		require.Equal(t, "read committed", isolation)
		return nil
	}))
}

// held is a tenant whose data is being copied from p1 to p2.
func held(t *testing.T) (b *testbed, operator *tenure.Client) {
	b = newTestbed(t, 2, 2) // t1 and t2 in p1
	makeOrders(b, "p1", "t1")
	makeOrders(b, "p1", "t2")
	operator = b.client(b.named("operator"))
	moved, err := operator.Operator().Tenants().Move(t.Context(), "t1", "p2", operate.MoveOptions{Wait: patience, Hold: true})
	require.NoError(t, err)
	require.Equal(t, operate.Moved{To: "p2", Held: true, Jobs: map[string]int{}}, moved)
	require.Equal(t, "held", stateOf(t, operator, "t1", "p1"))
	return b, operator
}

// While a tenant's data is copied nothing of it is written, jobs are taken in, and others
// are not disturbed.
func TestHold(t *testing.T) {
	t.Parallel()
	b, operator := held(t)
	node := b.start(few(b.named("n"), 2), b.registry(nil))
	shop := b.client(b.cfg)
	ctx := tenancy.For(t.Context(), "t1")
	err := order(ctx, shop, "one")
	require.ErrorIs(t, err, tenure.ErrTenantHeld)
	require.EqualError(t, err, `tenant "t1" is held while its data is copied to pool p2, and nothing can be written for it until that is done: try again later`)
	require.False(t, tenure.Refused(err))
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	require.Error(t, order(short, shop, "one"))
	other := tenancy.For(t.Context(), "t2")
	process := func() (pid int) { // of the connection that is used next
		t.Helper()
		require.NoError(t, shop.InTx(other, func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid)
		}))
		return pid
	}
	same := process()
	require.ErrorIs(t, order(ctx, shop, "one"), tenure.ErrTenantHeld)
	require.Equal(t, same, process(), "who asks for the tenant all the time costs others no connection")

	conn, err := pgx.Connect(t.Context(), b.db["p1"].Config().ConnString())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, options := range [][]tenure.Option{nil, {tenure.In(time.Minute)}, {tenure.Unique("u")}} {
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		_, err = shop.EnqueueTx(ctx, tx, write{1}, options...)
		require.ErrorIs(t, err, tenure.ErrTenantHeld)
		require.NoError(t, tx.Rollback(t.Context()))

		_, err = shop.Enqueue(ctx, write{1}, options...)
		require.NoError(t, err)
	}
	require.NoError(t, order(other, shop, "theirs"))
	_, err = node.Client().Enqueue(other, write{2})
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM t2.effect")
	require.Equal(t, 3, b.count("p1", unfinished, "t1"))

	// Again: it stays held. And it goes on where it is, when that is wanted.
	_, err = operator.Operator().Tenants().Move(t.Context(), "t1", "p2", operate.MoveOptions{Wait: patience, Hold: true})
	require.NoError(t, err)
	_, err = operator.Operator().Tenants().Move(t.Context(), "t2", "p1", operate.MoveOptions{Hold: true})
	require.ErrorContains(t, err, "it lives there already")
	waiting := make(chan error, 1)
	go func() { waiting <- order(ctx, shop, "waited") }()
	b.move(operator, "t1", "p1")
	require.NoError(t, <-waiting) // anyone who came at the end of it
	require.Equal(t, []string{"waited"}, ordersIn(b, "p1", "t1"))
	b.eventually(2, "p1", "SELECT count(*) FROM t1.effect")
	require.Equal(t, "active", stateOf(t, operator, "t1", "p1"))
}

// A hold that cannot be had leaves the tenant's jobs and transactions alone, whenever it
// fails; jobs that another command has stopped stay so, and it says so.
func TestHoldThatFails(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	makeOrders(b, "p1", "t1")
	shop, operator := b.client(b.cfg), b.client(b.named("operator"))
	ctx := tenancy.For(t.Context(), "t1")
	open := func() (end func()) {
		entered, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			done <- shop.InTx(ctx, func(context.Context, pgx.Tx) error {
				close(entered)
				<-goOn
				return nil
			})
		}()
		<-entered
		end = sync.OnceFunc(func() {
			close(goOn)
			require.NoError(t, <-done)
		})
		t.Cleanup(end) // the client could not be stopped with it open
		return end
	}
	hold := func(wait time.Duration, progress func(string)) error {
		_, err := operator.Operator().Tenants().Move(t.Context(), "t1", "p2", operate.MoveOptions{Wait: wait, Hold: true, Progress: progress})
		return err
	}
	const short = 300 * time.Millisecond
	end := open()
	err := hold(short, nil)
	require.ErrorContains(t, err, "1 transaction that began in pool p1 before its own are stopped is still open (the first: process ")
	require.ErrorContains(t, err, "tenure_test_app, tenure tenants, idle in transaction, open for ")
	require.ErrorContains(t, err, "its data cannot be copied before they end: run this again")
	require.NotContains(t, err.Error(), "give up", "it has been given up")
	require.Equal(t, "active", stateOf(t, operator, "t1", "p1"))
	require.NoError(t, order(ctx, shop, "one"))
	end()

	interrupted, interrupt := context.WithCancel(t.Context())
	end = open()
	_, err = operator.Operator().Tenants().Move(interrupted, "t1", "p2", operate.MoveOptions{Hold: true, Progress: func(step string) {
		if strings.Contains(step, "waiting for 1 transaction") {
			interrupt()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "active", stateOf(t, operator, "t1", "p1"))
	end()

	err = hold(short, func(step string) {
		if strings.Contains(step, "stopping its transactions") {
			end = open() // the last one to get in
		}
	})
	require.ErrorContains(t, err, "1 transaction that began in pool p1 before its own were stopped is still open")
	require.Equal(t, "active", stateOf(t, operator, "t1", "p1"))
	require.NoError(t, order(ctx, shop, "two"))
	end()

	b.exec("p1", "UPDATE tenure.tenant SET state = 'moving', other_pool = 'p2'") // by a command that was killed
	end = open()
	err = hold(short, nil)
	require.ErrorContains(t, err, "; its jobs stay stopped in pool p1, as before: run this again, or with --to p1 to give up")
	require.Equal(t, "moving", stateOf(t, operator, "t1", "p1"))
	require.NoError(t, order(ctx, shop, "three"))
	end()
	require.NoError(t, hold(patience, func(step string) {
		if strings.Contains(step, "stopping its transactions") {
			end = open()
		}
		if strings.Contains(step, "waiting for 1 transaction") {
			end()
		}
	}))
	require.Equal(t, "held", stateOf(t, operator, "t1", "p1"))
}

// A transaction that is prepared while it is waited for has not ended.
func TestHoldWaitsForPreparedTransactions(t *testing.T) {
	t.Parallel()
	b := newTestbedOn(t, pgtest.Server(t, devpg.Options{Settings: map[string]string{"max_prepared_transactions": "1"}}), 2, 1)
	conn, err := pgx.Connect(t.Context(), b.db["p1"].Config().ConnString())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	_, err = b.client(b.named("operator")).Operator().Tenants().Move(t.Context(), "t1", "p2", operate.MoveOptions{Wait: 2 * time.Second, Hold: true, Progress: func(step string) {
		switch {
		case strings.Contains(step, "stopping its transactions"):
			exec("BEGIN; INSERT INTO t1.effect VALUES (1, '', 't1')")
		case strings.Contains(step, "waiting for 1 transaction"):
			exec("PREPARE TRANSACTION 'x'")
		}
	}})
	require.ErrorContains(t, err, "1 transaction that began in pool p1 before its own were stopped is still open (the first: prepared ")
	exec("COMMIT PREPARED 'x'")
}

// acknowledged is what writers were told that they have written.
type acknowledged struct {
	mu      sync.Mutex
	orders  map[string]bool // guarded by mu
	jobs    int             // guarded by mu; that were committed
	refused map[string]int  // guarded by mu; as the tenant was held, by writer
	failed  error           // guarded by mu; what no writer may be told
}

func (a *acknowledged) note(writer, order string, jobs int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case errors.Is(err, tenure.ErrTenantHeld):
		a.refused[writer]++
	case err != nil:
		a.failed = errors.Join(a.failed, fmt.Errorf("%s: %w", writer, err))
	default:
		if a.jobs += jobs; order != "" {
			a.orders[order] = true
		}
	}
}

func (a *acknowledged) counts() (orders, jobs int, refused map[string]int, failed error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.orders), a.jobs, maps.Clone(a.refused), a.failed
}

// startWriters write orders and jobs of a tenant in every way until they are stopped: by InTx
// in two processes, each with a memory of its own of where the tenant is, in transactions
// of a program's own, and jobs alone.
func startWriters(b *testbed, tenant tenancy.ID, pools ...string) (a *acknowledged, stop func()) {
	a = &acknowledged{orders: map[string]bool{}, refused: map[string]int{}}
	ctx, cancel := context.WithCancel(tenancy.For(b.t.Context(), tenant))
	var group sync.WaitGroup
	run := func(writer string, write func(n int) (order string, jobs int, err error)) {
		group.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-ctx.Done():
					return
				case <-time.After(5 * time.Millisecond): // a rate that a busy machine can follow
				}
				order, jobs, err := write(n)
				a.note(writer, order, jobs, err)
			}
		})
	}
	lasting := context.WithoutCancel(ctx) // what has begun is let come to its end
	for _, name := range []string{"first", "second"} {
		c := b.client(b.named(name))
		run(name, func(n int) (string, int, error) {
			id := fmt.Sprint(name, n)
			return id, 1, c.InTx(lasting, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, addOrder, id)
				if err == nil {
					_, err = c.EnqueueTx(ctx, tx, write{n})
				}
				return err
			})
		})
	}
	own, at := b.client(b.named("own")), 0
	run("own", func(n int) (string, int, error) {
		id := fmt.Sprint("own", n)
		err := pgx.BeginFunc(lasting, b.db[pools[at]], func(tx pgx.Tx) error {
			if _, err := tx.Exec(lasting, fmt.Sprintf("INSERT INTO %s.orders (id) VALUES ($1)", tenant), id); err != nil {
				return err
			}
			_, err := own.EnqueueTx(lasting, tx, write{n})
			return err
		})
		if errors.Is(err, tenure.ErrWrongPool) { // it looks for itself where the tenant is
			at = (at + 1) % len(pools)
			return "", 0, nil
		}
		return id, 1, err
	})
	jobs := b.client(b.named("jobs"))
	run("jobs", func(n int) (string, int, error) {
		_, err := jobs.Enqueue(lasting, write{n})
		return "", 1, err
	})
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			group.Wait()
		})
	}
	b.t.Cleanup(stop)
	return a, stop
}

// copySchema copies a tenant's schema as its operator would while it is held.
func copySchema(b *testbed, tenant, from, to string) {
	b.t.Helper()
	b.prepare(tenant, to)
	makeOrders(b, to, tenant)
	for _, table := range []string{"orders", "effect"} {
		rows, err := b.db[from].Query(b.t.Context(), fmt.Sprintf("SELECT * FROM %s.%s", tenant, table))
		require.NoError(b.t, err)
		var values [][]any
		for rows.Next() {
			v, err := rows.Values()
			require.NoError(b.t, err)
			values = append(values, v)
		}
		require.NoError(b.t, rows.Err())
		columns := map[string][]string{"orders": {"id"}, "effect": {"job_id", "run", "tenant"}}[table]
		n, err := b.db[to].CopyFrom(b.t.Context(), pgx.Identifier{tenant, table}, columns, pgx.CopyFromRows(values))
		require.NoError(b.t, err)
		require.EqualValues(b.t, len(values), n)
	}
}

// The documented procedure, with writers and jobs running all the time: each write that was
// acknowledged is in the new database, and none only in the old one.
func TestMoveWithDataLosesNoWrite(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 2)
	makeOrders(b, "p1", "t1")
	a := b.start(few(b.gossiping("a"), 4), b.registry(nil))
	b.start(few(b.gossiping("b", a.Self().Addr), 4), b.registry(nil))
	a.meet(2)
	written, stop := startWriters(b, "t1", "p1", "p2")
	until := func(what string, reached func(orders, jobs int, refused map[string]int) bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			orders, jobs, refused, err := written.counts()
			require.NoError(t, err)
			return reached(orders, jobs, refused)
		}, 2*patience, time.Millisecond, what)
	}
	more := func() {
		t.Helper()
		had, _, _, _ := written.counts()
		until("orders go on", func(orders, _ int, _ map[string]int) bool { return orders >= had+sized(100, 30) })
	}
	more()
	operator := b.client(b.named("operator"))

	late, goOn, lateDone := b.client(b.named("late")), make(chan struct{}), make(chan error, 1)
	goesOn := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(goesOn) // the client could not be stopped with it open
	_, err := operator.Operator().Tenants().Move(t.Context(), "t1", "p2", operate.MoveOptions{Wait: patience, Hold: true, Progress: func(step string) {
		switch {
		case strings.Contains(step, "stopping its transactions in pool p1"): // somebody gets in just before
			entered := make(chan struct{})
			go func() {
				lateDone <- late.InTx(tenancy.For(t.Context(), "t1"), func(ctx context.Context, tx pgx.Tx) error {
					close(entered)
					<-goOn
					_, err := tx.Exec(ctx, addOrder, "late")
					if err == nil {
						_, err = late.EnqueueTx(ctx, tx, write{0})
					}
					return err
				})
			}()
			<-entered
		case strings.Contains(step, "before its own were stopped"):
			goesOn()
		}
	}})
	require.NoError(t, err)
	select {
	case err := <-lateDone:
		written.note("late", "late", 1, err)
	case <-time.After(time.Second): // it has committed, and says so
		require.Fail(t, "the copy would begin while a transaction is open")
	}
	before := ordersIn(b, "p1", "t1")
	until("everybody is refused", func(_, _ int, refused map[string]int) bool { return len(refused) == 3 })
	copySchema(b, "t1", "p1", "p2")
	_, had, seen, _ := written.counts()
	until("the copy takes long", func(_, jobs int, refused map[string]int) bool {
		return jobs > had && refused["first"] > seen["first"] && refused["second"] > seen["second"]
	})
	b.move(operator, "t1", "p2")
	more()
	stop()
	orders, jobs, _, err := written.counts()
	require.NoError(t, err)
	require.Equal(t, before, ordersIn(b, "p1", "t1"), "written in the old database while or after its data was copied")
	require.ElementsMatch(t, slices.Collect(maps.Keys(written.orders)), ordersIn(b, "p2", "t1"))
	require.Greater(t, orders, len(before))
	b.requireOnce("t1", jobs, "p2") // effects of before were copied
	require.Zero(t, b.count("p1", unfinished, "t1"))
}

// A handler that opens a second transaction, which all workers would wait for at once, is
// told so, and other tenants' jobs go on.
func TestInTxWithinATransaction(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 3)
	cfg := few(b.named("n"), 4)
	pool := cfg.Pools["p1"]
	pool.MaxConns = 8 // fewer for handlers than there are workers
	cfg.Pools = maps.Clone(cfg.Pools)
	cfg.Pools["p1"] = pool
	var node *running
	ready := make(chan struct{})
	r := job.NewRegistry()
	inner := make(chan error, 100)
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[plain]) error {
		<-ready
		for _, id := range []tenancy.ID{"t1", "t2"} { // its own, and another one
			err := node.Client().InTx(tenancy.For(ctx, id), func(context.Context, pgx.Tx) error { return nil })
			inner <- err
			if !errors.Is(err, tenure.ErrInTx) || !tenure.Refused(err) {
				return errors.New("it was not refused")
			}
		}
		return nil
	})
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID))
		return err
	})
	node = b.start(cfg, r)
	close(ready)
	for range 40 {
		_, err := node.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{})
		require.NoError(t, err)
		_, err = node.Client().Enqueue(tenancy.For(t.Context(), "t3"), write{})
		require.NoError(t, err)
	}
	b.finished(node.Client(), 80)
	require.Len(t, inner, 80)
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.job_error"))

	// A context outlives its transaction.
	var kept context.Context
	client := node.Client()
	require.NoError(t, client.InTx(tenancy.For(t.Context(), "t1"), func(ctx context.Context, _ pgx.Tx) error {
		kept = ctx
		require.ErrorIs(t, client.InTx(ctx, func(context.Context, pgx.Tx) error { return nil }), tenure.ErrInTx)
		return nil
	}))
	require.NoError(t, client.InTx(kept, func(context.Context, pgx.Tx) error { return nil }))
}
