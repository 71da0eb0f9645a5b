package execution

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// txCase is a handler in a transaction and what must become of it.
type txCase struct {
	name    string
	handle  func(ctx context.Context, tx pgx.Tx) error
	says    string // part of the error; "": the job is finished
	effects int    // of the handler that are committed
}

const addEffect = "INSERT INTO effect VALUES (1)"

var txCases = []txCase{
	{"commits with its effects", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, addEffect)
		return err
	}, "", 1},
	{"does nothing", func(context.Context, pgx.Tx) error { return nil }, "", 0},
	{"rolls back on an error", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, addEffect)
		return errors.Join(err, errBroken)
	}, "broken", 0},
	{"rolls back on a panic", func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, addEffect)
		panic("boom")
	}, "boom", 0},
	{"may not commit", func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, addEffect)
		return tx.Commit(ctx)
	}, "return nil to commit", 0},
	{"may not roll back", func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, addEffect)
		return tx.Rollback(ctx)
	}, "return nil to commit", 0},
	{"is not committed by who rolls it back", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, addEffect)
		_ = tx.Rollback(ctx)
		return err
	}, "called tx.Rollback, and returned nil", 0},
	{"goes on after it was refused", func(ctx context.Context, tx pgx.Tx) error {
		_ = tx.Commit(ctx)
		_, err := tx.Exec(ctx, addEffect)
		return err
	}, "", 1},
	{"keeps a released savepoint", func(ctx context.Context, tx pgx.Tx) error {
		return pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
			_, err := sp.Exec(ctx, addEffect)
			return err
		})
	}, "", 1},
	{"goes back to a savepoint", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, addEffect)
		sp, spErr := tx.Begin(ctx)
		if spErr != nil {
			return spErr
		}
		_, _ = sp.Exec(ctx, addEffect)
		_, failed := sp.Exec(ctx, "SELECT 1/0")
		if failed == nil {
			return errBroken
		}
		return errors.Join(err, sp.Rollback(ctx))
	}, "", 1},
	{"nests savepoints", func(ctx context.Context, tx pgx.Tx) error {
		return pgx.BeginFunc(ctx, tx, func(outer pgx.Tx) error {
			_ = pgx.BeginFunc(ctx, outer, func(inner pgx.Tx) error {
				_, _ = inner.Exec(ctx, addEffect)
				return errBroken
			})
			_, err := outer.Exec(ctx, addEffect)
			return err
		})
	}, "", 1},
	{"leaves a savepoint open", func(ctx context.Context, tx pgx.Tx) error {
		sp, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		_, err = sp.Exec(ctx, addEffect)
		return err
	}, "", 1},
	{"swallows a failed statement", func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, addEffect)
		_, _ = tx.Exec(ctx, "SELECT 1/0")
		return nil
	}, "returned nil: return the error", 0},
	{"commits by SQL", func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, addEffect)
		_, err := tx.Exec(ctx, "COMMIT")
		return err
	}, "ended the job's transaction by SQL", 1},
	{"rolls back by SQL", func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, addEffect)
		_, err := tx.Exec(ctx, "ROLLBACK")
		return err
	}, "ended the job's transaction by SQL", 0},
	{"leaves rows open", func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, addEffect)
		_, err := tx.Query(ctx, "SELECT generate_series(1, 10)")
		return err
	}, "open rows", 0},
	{"leaves a batch open", func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, addEffect)
		var b pgx.Batch
		b.Queue("SELECT 1")
		b.Queue("SELECT 2")
		_, err := tx.SendBatch(ctx, &b).Exec()
		return err
	}, "open batch", 0},
	{"leaves rows open with an error", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Query(ctx, "SELECT generate_series(1, 10)")
		return errors.Join(err, errBroken)
	}, "broken", 0},
	{"copies", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"job_id"}, pgx.CopyFromRows([][]any{{1}, {2}}))
		return err
	}, "", 2},
	{"copies rows that are asked for meanwhile", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"job_id"}, pgx.CopyFromFunc(func() ([]any, error) {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, busy := tx.Exec(ctx, addEffect)
			if !errors.Is(busy, errBusy) {
				return nil, errors.New("it waits for itself")
			}
			for method, err := range useAll(ctx, tx) {
				if err == nil {
					return nil, fmt.Errorf("%s works while rows are copied in", method)
				}
			}
			return nil, busy
		}))
		return err
	}, "conn busy", 0},
	{"sends a batch", func(ctx context.Context, tx pgx.Tx) error {
		var b pgx.Batch
		b.Queue(addEffect)
		b.Queue(addEffect)
		return tx.SendBatch(ctx, &b).Close()
	}, "", 2},
	{"prepares", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Prepare(ctx, "mine", addEffect); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "mine")
		return err
	}, "", 1},
	{"uses large objects", func(ctx context.Context, tx pgx.Tx) error {
		lo := tx.LargeObjects()
		id, err := lo.Create(ctx, 0)
		if err != nil {
			return err
		}
		o, err := lo.Open(ctx, id, pgx.LargeObjectModeWrite)
		if err != nil {
			return err
		}
		_, err = o.Write([]byte("x"))
		return errors.Join(err, lo.Unlink(ctx, id))
	}, "", 0},
	{"violates a constraint that is checked at the end", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "CREATE TABLE pair (a int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED); INSERT INTO pair VALUES (1), (1)")
		return err
	}, "duplicate key", 0},
	{"makes it read-only", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SET TRANSACTION READ ONLY")
		return err
	}, "read-only", 0},
	{"drops its connection", func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, addEffect)
		_, _ = tx.Exec(ctx, "RESET ROLE; SELECT pg_terminate_backend(pg_backend_pid())")
		return nil
	}, "the connection broke", 0},
}

func TestTenantTx(t *testing.T) {
	t.Parallel()
	handlers := map[string]txCase{}
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "tx", func(ctx context.Context, tx pgx.Tx, rec *job.Record) error {
			return handlers[string(rec.Payload)].handle(ctx, tx)
		})
	})
	for _, tc := range txCases {
		handlers[tc.name] = tc
	}
	c.start()
	for _, tc := range txCases {
		for _, id := range []string{"alpha", "gamma"} {
			e := c.run(t, "tx", c.tenants[id], tc.name)
			ended := c.count(t, "SELECT count(*) FROM tenure.ended WHERE job_id = $1 AND who = $2", int64(e.claim.Record.ID), c.user)
			if tc.says == "" {
				require.Equal(t, "in tx", e.how, "%s: %v", tc.name, e.outcome.Err)
				require.Equal(t, 1, ended, "%s: the job's end is written by the pool's own user", tc.name)
			} else {
				require.Equal(t, job.Retrying, e.outcome.State, tc.name)
				require.ErrorContains(t, e.outcome.Err, tc.says, tc.name)
				require.Zero(t, ended, tc.name)
			}
			require.Equal(t, tc.effects, c.count(t, "SELECT count(*) FROM "+id+".effect"), tc.name)
			c.exec(t, "TRUNCATE "+id+".effect; DROP TABLE IF EXISTS "+id+".pair")
		}
	}
}

// A claim on a job whose tenant has left, or whose data is being copied, is none any more:
// whatever the handler makes of that, nothing it did counts, and the job is not charged.
func TestTenantIsElsewhere(t *testing.T) {
	t.Parallel()
	handlers := map[string]func(ctx context.Context, tx pgx.Tx) error{
		"does nothing":   func(context.Context, pgx.Tx) error { return nil },
		"heeds no error": func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, addEffect); return nil },
		"sends a batch": func(ctx context.Context, tx pgx.Tx) error {
			var b pgx.Batch
			b.Queue(addEffect)
			return tx.SendBatch(ctx, &b).Close()
		},
		"has a savepoint": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Begin(ctx); return err },
		"panics": func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, addEffect); err != nil {
				panic(err)
			}
			return nil
		},
		"discards the job": func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO effect VALUES ($1)", 1); err != nil {
				return job.Discard(err)
			}
			return nil
		},
	}
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "tx", func(ctx context.Context, tx pgx.Tx, rec *job.Record) error {
			return handlers[string(rec.Payload)](ctx, tx)
		})
		inTx(r, "gives-up", func(context.Context, pgx.Tx, *job.Record) error { return job.Discard(errors.New("it is not worth it")) })
	})
	c.start()
	for state, how := range map[string]string{
		"'active', true": "in tx", "'arriving', true": "in tx", "'moving', false": "in tx",
		"'moving', true": "return", "'moved', false": "return", "'moved', true": "return",
	} {
		c.exec(t, "DELETE FROM tenure.tenant; INSERT INTO tenure.tenant (tenant_id, other_pool, state, held) VALUES ('alpha', 'far', "+state+")")
		for name := range handlers {
			e := c.run(t, "tx", c.tenants["alpha"], name)
			require.Equal(t, how, e.how, "%s: a handler that %s: %v", state, name, e.outcome.Err)
			require.Equal(t, "in tx", c.run(t, "tx", c.tenants["beta"], name).how, "another tenant")
		}
		if how == "return" {
			require.Equal(t, how, c.run(t, "gives-up", c.tenants["alpha"], "").how, "%s: it has sent nothing", state)
		}

		err := InTx(t.Context(), c.owner.tenants, *c.tenants["alpha"], func(context.Context, pgx.Tx) error { return nil })
		var moved *tenancy.MovedError
		switch {
		case how == "in tx":
			require.NoError(t, err, state)
		case errors.As(err, &moved):
			require.Equal(t, "far", moved.To)
			require.Contains(t, state, "moved")
		default:
			require.Equal(t, &tenancy.HeldError{Tenant: "alpha", To: "far"}, err, state)
		}
	}
}

// useAll tries every method of a handle and returns what each says.
func useAll(ctx context.Context, tx pgx.Tx) map[string]error {
	said := map[string]error{}
	_, said["Begin"] = tx.Begin(ctx)
	_, said["Exec"] = tx.Exec(ctx, addEffect)
	_, said["Query"] = tx.Query(ctx, "SELECT 1")
	said["QueryRow"] = tx.QueryRow(ctx, "SELECT 1").Scan(new(int))
	_, said["CopyFrom"] = tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"job_id"}, pgx.CopyFromRows([][]any{{1}}))
	_, said["Prepare"] = tx.Prepare(ctx, "p", "SELECT 1")
	results := tx.SendBatch(ctx, &pgx.Batch{})
	_, said["SendBatch.Exec"] = results.Exec()
	_, said["SendBatch.Query"] = results.Query()
	said["SendBatch.QueryRow"] = results.QueryRow().Scan()
	said["SendBatch.Close"] = results.Close()
	lo := tx.LargeObjects()
	_, said["LargeObjects"] = lo.Create(ctx, 0)
	return said
}

// What a handler keeps of its transaction is dead once it has returned, however it
// returned, also to a goroutine it left behind and when the connection has gone on
// to another tenant.
func TestHandleIsRevoked(t *testing.T) {
	t.Parallel()
	var kept, keptSavepoint pgx.Tx
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "keep", func(ctx context.Context, tx pgx.Tx, rec *job.Record) (err error) {
			kept = tx
			if keptSavepoint, err = tx.Begin(ctx); err != nil {
				return err
			}
			switch string(rec.Payload) {
			case "fail":
				return errBroken
			case "panic":
				panic("boom")
			}
			return nil
		})
		inTx(r, "use", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			for _, old := range []pgx.Tx{kept, keptSavepoint} {
				for method, err := range useAll(ctx, old) {
					if !errors.Is(err, ErrTxRevoked) && (method != "LargeObjects" || err == nil) { // those say it in other words
						return fmt.Errorf("%s of a handle whose job has ended: %w", method, err)
					}
				}
				if old.Conn() != nil {
					return errors.New("a handle whose job has ended gave a connection away")
				}
			}
			if err := keptSavepoint.Commit(ctx); !errors.Is(err, ErrTxRevoked) {
				return fmt.Errorf("savepoint: %w", err)
			}
			_, err := tx.Exec(ctx, addEffect)
			return err
		})
	})
	c.start()
	for _, how := range []string{"nil", "fail", "panic"} {
		e := c.run(t, "keep", c.tenants["alpha"], how)
		require.Equal(t, how == "nil", e.how == "in tx")
		e = c.run(t, "use", c.tenants["beta"], "")
		require.Equal(t, "in tx", e.how, "after %s: %v", how, e.outcome.Err)
	}
	require.Equal(t, 3, c.count(t, "SELECT count(*) FROM beta.effect"))
	require.Zero(t, c.count(t, "SELECT count(*) FROM alpha.effect"))
}

// A goroutine that the handler left behind hears ErrTxRevoked once the handler has
// returned, and the transaction commits without what it was too late for.
func TestLeftoverGoroutine(t *testing.T) {
	t.Parallel()
	heard := make(chan error, 1)
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "leave", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			begun := make(chan struct{})
			go func() {
				for n := 0; ; n++ {
					_, err := tx.Exec(context.WithoutCancel(ctx), addEffect)
					if err != nil {
						heard <- err
						return
					}
					if n == 10 {
						close(begun)
					}
				}
			}()
			<-begun
			return nil
		})
	})
	c.start()
	for range 20 {
		e := c.run(t, "leave", c.tenants["alpha"], "")
		require.Equal(t, "in tx", e.how, "%v", e.outcome.Err)
		require.ErrorIs(t, <-heard, ErrTxRevoked)
	}
}

// A goroutine left behind in the middle of a long statement: the job fails, what it
// did is rolled back, and the statement does not go on for ever.
func TestLeftoverGoroutineInACall(t *testing.T) {
	t.Parallel()
	heard := make(chan error, 1)
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "leave", func(ctx context.Context, tx pgx.Tx, rec *job.Record) error {
			if _, err := tx.Exec(ctx, addEffect); err != nil {
				return err
			}
			go func() {
				_, err := tx.Exec(context.Background(), "SELECT pg_sleep(60)")
				heard <- err
			}()
			inCall := func() bool { return len(tx.(*tenantTx).handle.lock) > 0 }
			if !assert.Eventually(t, inCall, patience, time.Millisecond) {
				return nil
			}
			if string(rec.Payload) == "panic" {
				panic("boom")
			}
			return nil
		})
		inTx(r, "next", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			_, err := tx.Exec(ctx, addEffect)
			return err
		})
	})
	c.start()
	for how, says := range map[string]string{"nil": "another goroutine of it uses the transaction", "panic": "boom"} {
		e := c.run(t, "leave", c.tenants["alpha"], how)
		require.Equal(t, job.Retrying, e.outcome.State)
		require.ErrorContains(t, e.outcome.Err, says)
		select {
		case err := <-heard:
			require.Error(t, err)
		case <-time.After(patience):
			require.FailNow(t, "its statement goes on")
		}
		require.Equal(t, "in tx", c.run(t, "next", c.tenants["beta"], "").how)
		require.Zero(t, c.count(t, "SELECT count(*) FROM alpha.effect"))
	}
}

// A handler that goes on with a context of its own after its timeout, and returns
// nil, has not done its job in time: nothing is committed.
func TestTimeoutInTx(t *testing.T) {
	t.Parallel()
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "stuck", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			<-ctx.Done()
			_, err := tx.Exec(context.Background(), addEffect)
			return err
		}, job.Timeout(time.Second))
		inTx(r, "asleep", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
			return err
		}, job.Timeout(time.Second))
	})
	c.start()
	for _, kind := range []string{"stuck", "asleep"} {
		e := c.run(t, kind, c.tenants["alpha"], "")
		require.Equal(t, job.Retrying, e.outcome.State)
		require.ErrorIs(t, e.outcome.Err, job.ErrTimeout)
		require.Zero(t, c.count(t, "SELECT count(*) FROM alpha.effect"))
	}
}

func TestTenantCannotBeEntered(t *testing.T) {
	t.Parallel()
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "tx", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error { return nil })
	})
	closed := c.add(t, "closed", "closed", true)
	c.exec(t, "REVOKE ALL ON SCHEMA closed FROM "+closed.Role+"; ALTER SCHEMA closed OWNER TO "+c.user)
	c.exec(t, "CREATE ROLE stranger"+c.suffix)
	stranger := &tenancy.Tenant{ID: "stranger", Pool: "main", Schema: "alpha", Role: "stranger" + c.suffix}
	c.tenants["stranger"] = stranger
	c.start()
	cases := map[string]struct {
		tenant *tenancy.Tenant
		says   string
		mend   string // the next thing to type
	}{
		"no schema":               {&tenancy.Tenant{ID: "lost", Pool: "main", Schema: "lost"}, `tenant lost has no schema lost`, `execute in pool main: CREATE SCHEMA IF NOT EXISTS "lost"; GRANT USAGE ON SCHEMA "lost" TO "`},
		"a schema of two names":   {&tenancy.Tenant{ID: "lost", Pool: "main", Schema: "alpha, beta"}, `has no schema alpha, beta`, `CREATE SCHEMA IF NOT EXISTS "alpha, beta"`},
		"a quoted name":           {&tenancy.Tenant{ID: "lost", Pool: "main", Schema: `"alpha"`}, `has no schema "alpha"`, `CREATE SCHEMA IF NOT EXISTS """alpha"""`},
		"no USAGE":                {closed, "may not use schema closed of tenant closed", `GRANT USAGE ON SCHEMA "closed" TO "` + closed.Role + `"`},
		"no role":                 {&tenancy.Tenant{ID: "alpha", Pool: "main", Schema: "alpha", Role: "nobody" + c.suffix}, `role "nobody` + c.suffix + `" does not exist`, `CREATE ROLE "nobody` + c.suffix + `"; GRANT "nobody` + c.suffix + `" TO "`},
		"a role not granted":      {stranger, "permission denied to set role", `GRANT "stranger` + c.suffix + `" TO "`},
		"a schema longer than 63": {&tenancy.Tenant{ID: "lost", Pool: "main", Schema: "alpha" + strings.Repeat("x", 80)}, "has no schema", "CREATE SCHEMA"},
	}
	for name, tc := range cases {
		e := c.run(t, "tx", tc.tenant, "")
		require.Equal(t, job.Snoozed, e.outcome.State, "%s: no attempt is charged", name)
		require.ErrorContains(t, e.outcome.Err, fmt.Sprintf("tenant %q", tc.tenant.ID), name)
		require.ErrorContains(t, e.outcome.Err, tc.says, name)
		require.ErrorContains(t, e.outcome.Err, tc.mend, name)
		require.Equal(t, "in tx", c.run(t, "tx", c.tenants["beta"], "").how, "the next one is not harmed by %q", name)
	}
	families, err := c.workers.metrics.Gather()
	require.NoError(t, err)
	putOff := 0.0
	for _, f := range families {
		for _, one := range f.Metric {
			if f.GetName() == "tenure_jobs_finished_total" && strings.Contains(labelsOf(one), "put_off") {
				putOff += one.GetCounter().GetValue()
			}
		}
	}
	require.EqualValues(t, len(cases), putOff)
}

// Names that would mean something else if they were not quoted.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	var user, path, tenant, canary string
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "look", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			return tx.QueryRow(ctx, "SELECT current_user, current_setting('search_path'), current_setting('app.tenant_id'), (SELECT tenant FROM canary)").
				Scan(&user, &path, &tenant, &canary)
		})
	})
	c.start()
	for _, name := range []string{
		`a","public`, `a, public`, `x'--`, `x';DROP SCHEMA alpha;--`, `"`, `""`, `\`, `\'`, `$1`, `%s`, `Upper-Case`, `with space`,
		`İstanbul`, `ß`, `日本`, `"$user"`, `/*`, `x--`, "tab\there", `a.b`, `select`, `E'\\x'`,
		strings.Repeat("x", 40) + "é", // with the role's suffix as long as a name may be
	} {
		for _, withRole := range []bool{true, false} {
			id := name
			if !withRole {
				id += "*"
			}
			tenantOf := c.add(t, id, id, withRole)
			e := c.run(t, "look", tenantOf, "")
			require.Equal(t, "in tx", e.how, "%q: %v", id, e.outcome.Err)
			want := c.user
			if withRole {
				want = tenantOf.Role
			}
			require.Equal(t, []string{want, id, id}, []string{user, tenant, canary})
			require.Contains(t, []string{quoted(id) + ", pg_temp", id + ", pg_temp"}, path)
		}
	}
	require.Equal(t, 1, c.count(t, "SELECT count(*) FROM pg_namespace WHERE nspname = 'alpha'"))
}

// InTx is for enqueuing and for tests of handlers: the same, without a job.
// TestTransactionsEndInTime: a transaction has the time of its context on the server, too,
// be that more or less than the connection's own bound, which holds without a deadline. What
// the DSN sets holds in any case, and nobody waits for a lock for long.
func TestTransactionsEndInTime(t *testing.T) {
	t.Parallel()
	var said string
	look := func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, `SELECT concat_ws(' ', current_setting('lock_timeout'),
			width_bucket(extract(epoch FROM current_setting('statement_timeout')::interval), ARRAY[60, 900, 901, 3600, 7201, 7206]),
			current_setting('statement_timeout') = current_setting('idle_in_transaction_session_timeout'))`).Scan(&said)
	}
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "long", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error { return look(ctx, tx) }, job.Timeout(2*time.Hour))
		inTx(r, "short", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error { return look(ctx, tx) }, job.Timeout(50*time.Second))
	})
	c.start()
	for _, tenant := range []string{"alpha", "gamma"} {
		require.Equal(t, "in tx", c.run(t, "long", c.tenants[tenant], "").how)
		require.Equal(t, "10s 5 t", said, "between two hours and five seconds more")
		require.Equal(t, "in tx", c.run(t, "short", c.tenants[tenant], "").how)
		require.Equal(t, "10s 0 t", said, "less than a minute")
		require.NoError(t, InTx(t.Context(), c.owner.tenants, *c.tenants[tenant], look))
		require.Equal(t, "10s 2 t", said, "a quarter of an hour")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		require.NoError(t, InTx(ctx, c.owner.tenants, *c.tenants[tenant], look))
		cancel()
		require.Equal(t, "10s 0 t", said, "less than a minute")
		ctx, cancel = context.WithDeadline(t.Context(), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)) // further than a duration goes
		require.NoError(t, InTx(ctx, c.owner.tenants, *c.tenants[tenant], look))
		cancel()
		require.Equal(t, "10s 6 t", said, "as long as Postgres can say")
	}

	db := tenantConns(t, routing.PoolConfig{DSN: c.admin.Config().ConnString() + "&statement_timeout=1800000&lock_timeout=7000", MaxConns: 4})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, InTx(ctx, db, *c.tenants["gamma"], look))
	require.Equal(t, "7s 3 f", said, "half an hour")
}

func TestInTx(t *testing.T) {
	t.Parallel()
	c := newCity(t, nil)
	db := c.owner.tenants
	alpha := *c.tenants["alpha"]
	var seen pgx.Tx
	require.NoError(t, InTx(t.Context(), db, alpha, func(ctx context.Context, tx pgx.Tx) error {
		seen, _ = TxFromContext(ctx)
		require.Same(t, tx, seen)
		_, err := tx.Exec(ctx, addEffect)
		return err
	}))
	require.ErrorIs(t, InTx(t.Context(), db, alpha, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, addEffect)
		return errors.Join(err, errBroken)
	}), errBroken)
	require.Panics(t, func() {
		_ = InTx(t.Context(), db, alpha, func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, addEffect)
			panic("boom")
		})
	})
	require.Equal(t, 1, c.count(t, "SELECT count(*) FROM alpha.effect"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, InTx(ctx, db, alpha, func(context.Context, pgx.Tx) error { return nil }), context.Canceled)
}

// Jobs of many workers share few connections, and each sees its own tenant.
func TestManyWorkersFewConnections(t *testing.T) {
	t.Parallel()
	var wrong atomic.Int64
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "look", func(ctx context.Context, tx pgx.Tx, rec *job.Record) error {
			var tenant, canary string
			if err := tx.QueryRow(ctx, "SELECT current_setting('app.tenant_id'), (SELECT tenant FROM canary)").Scan(&tenant, &canary); err != nil {
				return err
			}
			if tenant != rec.Tenant || canary != rec.Tenant {
				wrong.Add(1)
			}
			return nil
		})
	})
	more := c.workers.cfg
	more.Workers = 8
	var err error
	c.workers, err = New(more, c.workers.registry, zap.NewNop())
	require.NoError(t, err)
	c.owner.tenants = tenantConns(t, routing.PoolConfig{DSN: storetest.As(c.admin.Config().ConnString(), c.user), MaxConns: 7})
	require.EqualValues(t, 3, c.owner.tenants.Stat().MaxConns())
	c.start()
	const n = 300
	ids := []string{"alpha", "beta", "gamma"}
	batch := make([]ClaimedJob, n)
	for i := range batch {
		batch[i] = c.claim("look")
		batch[i].Tenant, batch[i].Record.Tenant = c.tenants[ids[i%3]], ids[i%3]
	}
	c.submitClaims(batch)
	for left, returned := n, 0; left > 0; {
		e := c.owner.next(t)
		if e.how == "return" { // a slow machine had no connection for it in time
			returned++
			require.Less(t, returned, n)
			again := c.claim("look")
			again.Tenant, again.Record.Tenant = e.claim.Tenant, e.claim.Record.Tenant
			c.submitClaims([]ClaimedJob{again})
			continue
		}
		require.Equal(t, "in tx", e.how, "%v", e.outcome.Err)
		left--
	}
	require.Zero(t, wrong.Load())
	c.stop()
}

// Opening the transaction takes so long that the claim does not stand any more: the job
// may be running elsewhere, so it does not start.
func TestTooLateToStart(t *testing.T) {
	t.Parallel()
	t.Run("the claim does not stand any more", func(t *testing.T) {
		t.Parallel()
		tooLateToStart(t, false)
	})
	t.Run("there is no connection", func(t *testing.T) {
		t.Parallel()
		tooLateToStart(t, true)
	})
}

func tooLateToStart(t *testing.T, wait bool) {
	ran := false
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "k", func(context.Context, pgx.Tx, *job.Record) error {
			ran = true
			return nil
		})
	})
	var err error
	conns := make([]*pgxpool.Conn, c.owner.tenants.Stat().MaxConns())
	for i := range conns {
		conns[i], err = c.owner.tenants.Acquire(t.Context())
		require.NoError(t, err)
		t.Cleanup(conns[i].Release) // else a failure would wait for it
	}
	c.start()
	one := c.claim("k")
	one.Tenant, one.Record.Tenant = c.tenants["alpha"], "alpha"
	c.submitClaims([]ClaimedJob{one})
	require.Eventually(t, func() bool { return c.workers.runningKinds()["k"] == 1 }, patience, time.Millisecond)
	if wait {
		began := time.Now()
		require.Equal(t, "return", c.owner.next(t).how)
		require.Greater(t, time.Since(began), openWithin/2)
	}
	c.owner.mayStart.Store(wait)
	for _, conn := range conns {
		conn.Release()
	}
	if !wait {
		require.Equal(t, "return", c.owner.next(t).how)
	}
	require.False(t, ran)
	c.stop()
}

// unshared are connections of which a tenant may have all.
type unshared struct{ db *pgxpool.Pool }

func (u unshared) AcquireFor(ctx context.Context, _ tenancy.ID) (*pgxpool.Conn, func(), error) {
	c, err := u.db.Acquire(ctx)
	return c, func() {}, err
}

// BenchmarkInTx is a job that writes a row in its tenant's schema, beside the same
// statements bare.
func BenchmarkInTx(b *testing.B) {
	ctx := context.Background()
	db, err := pgxpool.New(ctx, storetest.DSN(b, "main", 1))
	require.NoError(b, err)
	defer db.Close()
	_, err = db.Exec(ctx, "CREATE SCHEMA acme; CREATE TABLE acme.effect (job_id bigint)")
	require.NoError(b, err)
	b.Run("tenant", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, InTx(ctx, unshared{db}, *acme, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, addEffect)
				return err
			}))
		}
	})
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO acme.effect VALUES (1)")
				return err
			}))
		}
	})
}
