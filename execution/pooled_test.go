package execution

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/devpg/poolertest"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// outOfTx is an attack by a text that ends the transaction and goes on: through a pooler, on a
// session that is the next tenant's.
func outOfTx(text string) attack {
	ways := map[string]func(context.Context, pgx.Tx) error{
		"Exec": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, text)
			return err
		},
		"Exec as it is": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
			return err
		},
		"Query": func(ctx context.Context, tx pgx.Tx) error {
			rows, _ := tx.Query(ctx, text, pgx.QueryExecModeSimpleProtocol)
			rows.Close()
			return rows.Err()
		},
		"QueryRow": func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, text, pgx.NamedArgs{}).Scan() },
		"SendBatch": func(ctx context.Context, tx pgx.Tx) error {
			var b pgx.Batch
			b.Queue("SELECT 1")
			b.Queue(text)
			return tx.SendBatch(ctx, &b).Close()
		},
	}
	return attack{"40 out of the transaction by " + text, func(ctx context.Context, tx pgx.Tx, v *villain) error {
		for name, way := range ways {
			sp, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			err = way(ctx, sp)
			status := tx.(*tenantTx).handle.conn.PgConn().TxStatus()
			var pg *pgconn.PgError
			if status == 'I' || !errors.Is(err, errNotYours) && !(errors.As(err, &pg) && pg.Code == codeSyntax) {
				v.t.Errorf("%s by %s: status %c, %v", text, name, status, err)
				return err
			}
			if err := sp.Rollback(ctx); err != nil {
				return err
			}
		}
		return nil
	}, "done", kept}
}

const onward = "; SET search_path = public; SET app.other = 'secret'; LISTEN x; CREATE TEMP TABLE orders (of text); SELECT pg_advisory_lock(7)"

// leaveForGood leaves on a session what a rollback does not undo.
func leaveForGood(ctx context.Context, tx pgx.Tx, _ *villain) error {
	_, err := tx.Exec(ctx, "SELECT pg_advisory_lock(1), pg_advisory_lock_shared(2, 3), setseed(0.5)")
	if err == nil {
		_, err = tx.Exec(ctx, "PREPARE p AS SELECT 'theirs'")
	}
	return err
}

// poolerAttacks are those that matter where the next transaction has another's session.
var poolerAttacks = []attack{
	outOfTx("COMMIT"),
	outOfTx("commit and chain"),
	outOfTx(" ;/* a /* b */ */ -- c\n\t;COMMIT"),
	outOfTx("--\rEnd"),
	outOfTx("/**/ABORT/**/"),
	outOfTx("ROLLBACK"),
	outOfTx("ROLLBACK WORK AND NO CHAIN"),
	outOfTx("ROLLBACK /* TO */ TRANSACTION"),
	outOfTx("PREPARE TRANSACTION 'x'"),
	outOfTx("COMMIT" + onward),
	outOfTx("SELECT 1; COMMIT" + onward),
	outOfTx("SELECT ';\\'; END" + onward + "; SELECT ''"),
	outOfTx("SET LOCAL work_mem = '1MB';rollback" + onward),
	outOfTx("BEGIN;ABORT" + onward),
	{"41 a COMMIT that fails", func(ctx context.Context, tx pgx.Tx, v *villain) error {
		_, err := tx.Exec(ctx, "DECLARE c CURSOR WITH HOLD FOR SELECT 1 / (random() < 0)::int")
		return errors.Join(err, leaveForGood(ctx, tx, v))
	}, "failed", kept},
	{"42 what a rollback leaves", failing(leaveForGood), "failed", kept},
}

// Many transactions at a time share a few sessions. None sees what others leave there, and none is
// cancelled with another, whose session it may have got meanwhile.
func TestManyTransactionsThroughAPooler(t *testing.T) {
	t.Parallel()
	var way string
	c := makeCity(t, nil, func(c *city, dsn string) string {
		c.pooler = poolertest.Start(t, dsn, map[string]string{"default_pool_size": "3"})
		way = c.pooler.DSN(databaseOf(t, dsn))
		return way
	})
	conns := tenantConns(t, routing.PoolConfig{DSN: storetest.As(c.admin.Config().ConnString(), c.user), TenantDSN: way, MaxConns: 16})
	look := func(id string) (print string, err error) {
		err = InTx(t.Context(), conns, *c.tenants[id], func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, fingerprint).Scan(&print, new(int))
		})
		return print, err
	}
	ids := []string{"alpha", "beta", "gamma"}
	baseline := map[string]string{}
	for _, id := range ids {
		var err error
		baseline[id], err = look(id)
		require.NoError(t, err)
	}
	leave := strings.Split(`SET search_path = public|SET app.tenant_id = 'other'|CREATE TEMP TABLE orders (of text)|LISTEN x|PREPARE p AS SELECT 1|
		DECLARE c CURSOR WITH HOLD FOR SELECT 1|SELECT pg_advisory_lock_shared(1)|SET default_transaction_read_only = on|SET TimeZone = 'Asia/Kolkata'|RESET ROLE`, "|")
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 40 {
				villain, victim := ids[(i+n)%3], ids[(i+n+1+n%2)%3]
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				if n%4 == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(5+n)*time.Millisecond)
				}
				_ = InTx(ctx, conns, *c.tenants[villain], func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, leave[(i+n)%len(leave)])
					if n%4 == 0 {
						_, err = tx.Exec(ctx, "SELECT pg_sleep(10)")
					}
					if n%4 == 1 {
						return errBroken
					}
					return err
				})
				cancel()
				print, err := look(victim)
				if err != nil || !assert.JSONEq(t, baseline[victim], print) {
					t.Errorf("%s after %s by %s: %v", victim, leave[(i+n)%len(leave)], villain, err)
				}
			}
		})
	}
	group.Wait()
}

// Once a transaction is over, nothing of it is left on the pooler's session, where others could
// wait for it: neither after a COMMIT nor after a rollback.
func TestNothingIsLeftBehindAPooler(t *testing.T) {
	t.Parallel()
	c := newPooledCity(t, func(r *job.Registry) {
		inTx(r, "leave", func(ctx context.Context, tx pgx.Tx, rec *job.Record) error {
			_, err := tx.Exec(ctx, "LISTEN x; CREATE TEMP TABLE mine (a int)")
			if err = errors.Join(err, leaveForGood(ctx, tx, nil)); err != nil {
				return err
			}
			if string(rec.Payload) == "fail" {
				return errBroken
			}
			return nil
		})
	})
	c.start()
	for _, payload := range []string{"", "fail"} {
		for _, id := range []string{"alpha", "gamma"} {
			c.run(t, "leave", c.tenants[id], payload)
			require.Zero(t, c.count(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"), "%q by %s", payload, id)
			require.Zero(t, c.count(t, "SELECT count(*) FROM pg_class WHERE relname = 'mine'"), "%q by %s", payload, id)
		}
	}
}

// What handlers write goes through as it is, also with the words in it by which a transaction
// could be ended.
func TestStatementsThroughAPooler(t *testing.T) {
	t.Parallel()
	c := newPooledCity(t, nil)
	works := func(sql string, args ...any) {
		t.Helper()
		require.NoError(t, InTx(t.Context(), c.owner.tenants, *c.tenants["alpha"], func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sql, args...)
			if err == nil {
				rows, _ := tx.Query(ctx, "SELECT count(*) FROM orders WHERE of <> $1", "rollback; commit")
				_, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
			}
			return err
		}), sql)
	}
	works("INSERT INTO effect VALUES (1); UPDATE effect SET job_id = 2 WHERE job_id = 1")
	works("INSERT INTO effect VALUES (CASE WHEN true THEN 3 END)")
	works("INSERT INTO orders VALUES ('commit; end'), ($1)", "abort")
	works("INSERT INTO orders VALUES (@a)", pgx.NamedArgs{"a": "end"})
	works("DO $$ BEGIN DELETE FROM effect; END $$")
	works("PREPARE p AS SELECT 1")
	works("COPY (SELECT 1 AS end) TO STDOUT")
	var ended []int
	require.NoError(t, InTx(t.Context(), c.owner.tenants, *c.tenants["alpha"], func(ctx context.Context, tx pgx.Tx) error {
		for _, sql := range []string{"SAVEPOINT a", "INSERT INTO effect VALUES (9)", "ROLLBACK TO a", "ROLLBACK WORK TO SAVEPOINT a", "rollback transaction to a"} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		if err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
			_, err := sp.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"job_id"}, pgx.CopyFromRows([][]any{{4}, {5}}))
			return err
		}); err != nil {
			return err
		}
		var b pgx.Batch
		b.Queue("INSERT INTO effect VALUES ($1)", 6)
		b.Queue("SELECT CASE WHEN true THEN 7 END").QueryRow(func(row pgx.Row) error { return row.Scan(new(int)) })
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "SELECT job_id FROM effect ORDER BY job_id")
		if err == nil {
			ended, err = pgx.CollectRows(rows, pgx.RowTo[int])
		}
		return err
	}))
	require.Equal(t, []int{4, 5, 6}, ended)
}

// A call whose context has ended does not go on for long on the server, although the pooler is
// not asked to cancel it.
func TestACancelledCallEndsBehindAPooler(t *testing.T) {
	t.Parallel()
	c := newPooledCity(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- InTx(ctx, c.owner.tenants, *c.tenants["alpha"], func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT pg_sleep(600)")
			return err
		})
	}()
	sleeping := func() int {
		return c.count(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query = 'SELECT pg_sleep(600)'")
	}
	require.Eventually(t, func() bool { return sleeping() == 1 }, patience, patience/10000)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Eventually(t, func() bool { return sleeping() == 0 }, patience, patience/1000)
}

// What would stay with a session is refused, with the reason.
func TestSessionsAreNotUsedThroughAPooler(t *testing.T) {
	t.Parallel()
	c := newPooledCity(t, nil)
	require.NoError(t, InTx(t.Context(), c.owner.tenants, *c.tenants["alpha"], func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Prepare(ctx, "p", "SELECT 1")
		require.ErrorIs(t, err, errBehindPooler)
		objects := tx.LargeObjects()
		_, err = objects.Create(ctx, 0)
		require.Error(t, err)
		return nil
	}))
}

// What the pooler does to a job before its handler runs is not the job's fault.
func TestAPoolerThatRefusesChargesNoJob(t *testing.T) {
	t.Parallel()
	ran := 0
	c := makeCity(t, func(r *job.Registry) {
		inTx(r, "write", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			ran++
			_, err := tx.Exec(ctx, addEffect)
			return err
		})
	}, func(c *city, dsn string) string {
		c.pooler = poolertest.Start(t, dsn, map[string]string{"default_pool_size": "1", "query_wait_timeout": "1"})
		return c.pooler.DSN(databaseOf(t, dsn))
	})
	c.start()
	write := func() end { return c.run(t, "write", c.tenants["alpha"], "") }
	require.Equal(t, "in tx", write().how)

	// Another client has the one session.
	cfg, err := pgx.ParseConfig(c.pooler.DSN(databaseOf(t, c.admin.Config().ConnString())))
	require.NoError(t, err)
	other, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer other.Close(context.Background())
	_, err = other.Exec(t.Context(), "BEGIN")
	require.NoError(t, err)
	e := write()
	require.Equal(t, job.Snoozed, e.outcome.State, "%v", e.outcome.Err)
	_, err = other.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	require.Equal(t, "in tx", write().how)

	// It is restarted; connections that are idle are not known to be dead.
	c.pooler.Stop()
	e = write()
	require.Equal(t, job.Snoozed, e.outcome.State, "%v", e.outcome.Err)
	c.pooler.Launch()
	require.Eventually(t, func() bool { return write().how == "in tx" }, patience, time.Second/10)

	// It is told to do something else meanwhile.
	for _, settings := range []map[string]string{{"database_name": "postgres"}, {"pool_mode": "statement"}} {
		c.pooler.Configure(settings)
		c.pooler.Admin("RELOAD")
		e = write()
		require.Equal(t, job.Snoozed, e.outcome.State, "%v", e.outcome.Err)
	}
	require.Equal(t, 3, ran)
	require.Equal(t, 3, c.count(t, "SELECT count(*) FROM alpha.effect"))
}

// The first transaction after a restart of the server finds out that it is another, and goes on
// there: the pooler has kept its connection.
func TestATransactionAfterARestartBehindAPooler(t *testing.T) {
	t.Parallel()
	s := pgtest.Server(t, devpg.Options{})
	require.NoError(t, s.CreateDatabase(t.Context(), "main"))
	require.NoError(t, storetest.Prepare(t.Context(), s.DSN("main"), "main", 1))
	pooler := poolertest.Start(t, s.DSN("main"), map[string]string{"server_login_retry": "1"})
	conns := tenantConns(t, routing.PoolConfig{DSN: s.DSN("main"), TenantDSN: pooler.DSN("main"), MaxConns: 4})
	began := func() (at time.Time) {
		t.Helper()
		require.NoError(t, InTx(t.Context(), conns, tenancy.Tenant{ID: "acme", Pool: "main", Schema: "public"}, func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "SELECT pg_postmaster_start_time()").Scan(&at)
		}))
		return at
	}
	before := began()
	require.NoError(t, s.Restart(t.Context(), false))
	pooler.Admin("RECONNECT")
	require.True(t, began().After(before))
}

// What is before a word is read as Postgres reads it.
func TestEndsTx(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]bool{
		"COMMIT": true, "eNd": true, "abort;": true, "rollback": true, "ROLLBACK/**/": true, "prepare transaction 'x'": true, "rollback prepared 'x'": true,
		"\v\f;;/*/**/*/--x\r--y\n  commit": true,
		"":                                 false, "--COMMIT": false, "/* COMMIT": false, "/*/ COMMIT */": false, "/* /* */ COMMIT": false, "(COMMIT)": false,
		"committed": false, "_end": false, "endé": false, "SELECT 1; COMMIT": false, "ROLLBACK TO s": false, "rollback--\nwork/* */to s": false, "PREPARE p AS SELECT 1": false,
	} {
		require.Equal(t, want, endsTx(sql), sql)
	}
}
