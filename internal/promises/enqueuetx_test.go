package promises_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// relay is a job that enqueues another in its own transaction, for a tenant.
type relay struct {
	For string `json:"for"`
}

func (relay) Kind() string { return "relay" }

// enqueueing enqueues in one transaction, of any kind, jobs now, later and with a key.
type enqueueing func(args job.Args, opts ...tenure.Option) (tenure.Enqueued, error)

// inEveryTx runs fn in each kind of transaction that an application may have. It is
// committed unless fn fails; exec is a statement in it.
func inEveryTx(b *testbed, c *tenure.Client, fn func(t *testing.T, add enqueueing, exec func(string) error) error) {
	ctx := tenancy.For(b.t.Context(), "t1")
	dsn := b.db["p1"].Config().ConnString()
	producer := "tenure_test_producer_" + strings.ToLower(rand.Text()[:8])
	b.exec("p1", "CREATE ROLE "+producer+" LOGIN PASSWORD 'secret'; GRANT INSERT (tenant_id) ON tenure.job TO "+producer)
	open := func(dsn, setup string, mode pgx.QueryExecMode) *pgxpool.Pool {
		cfg, err := pgxpool.ParseConfig(dsn)
		require.NoError(b.t, err)
		cfg.ConnConfig.DefaultQueryExecMode = mode
		cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, setup)
			return err
		}
		db, err := pgxpool.NewWithConfig(ctx, cfg)
		require.NoError(b.t, err)
		b.t.Cleanup(db.Close)
		return db
	}
	const asTenant = "SET ROLE " + rolePrefix + "t1; SET search_path = t1"
	own := func(db *pgxpool.Pool, options pgx.TxOptions) func(*testing.T) error {
		return func(t *testing.T) error {
			return pgx.BeginTxFunc(ctx, db, options, func(tx pgx.Tx) error {
				return fn(t, func(args job.Args, opts ...tenure.Option) (tenure.Enqueued, error) {
					return c.EnqueueTx(ctx, tx, args, opts...)
				}, func(sql string) error {
					_, err := tx.Exec(ctx, sql)
					return err
				})
			})
		}
	}
	for name, in := range map[string]func(t *testing.T) error{
		"InTx": func(t *testing.T) error {
			return c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				return fn(t, func(args job.Args, opts ...tenure.Option) (tenure.Enqueued, error) {
					return c.EnqueueTx(ctx, tx, args, opts...)
				}, func(sql string) error {
					_, err := tx.Exec(ctx, sql)
					return err
				})
			})
		},
		"the tenant's role":             own(open(storetest.AsRuntime(dsn), asTenant, pgx.QueryExecModeCacheStatement), pgx.TxOptions{}),
		"the tenant's role, simple":     own(open(storetest.AsRuntime(dsn), asTenant, pgx.QueryExecModeSimpleProtocol), pgx.TxOptions{}),
		"the tenant's role, repeatable": own(open(storetest.AsRuntime(dsn), asTenant, pgx.QueryExecModeExec), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}),
		"the nodes' user":               own(open(storetest.AsRuntime(dsn), "", pgx.QueryExecModeDescribeExec), pgx.TxOptions{}),
		"another user":                  own(open(storetest.As(dsn, producer), "", pgx.QueryExecModeCacheDescribe), pgx.TxOptions{}),
		"database/sql": func(t *testing.T) error {
			db := stdlib.OpenDBFromPool(open(storetest.AsRuntime(dsn), asTenant, pgx.QueryExecModeCacheStatement))
			defer db.Close()
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }() // unless it was committed
			err = fn(t, func(args job.Args, opts ...tenure.Option) (tenure.Enqueued, error) {
				return c.EnqueueSQLTx(ctx, tx, args, opts...)
			}, func(sql string) error {
				_, err := tx.ExecContext(ctx, sql)
				return err
			})
			if err != nil {
				return err
			}
			return tx.Commit()
		},
	} {
		b.t.Run(name, func(t *testing.T) {
			b.exec("p1", "DELETE FROM tenure.job; DELETE FROM tenure.timer_job; DELETE FROM tenure.unique_job")
			err := in(t)
			require.True(t, err == nil || errors.Is(err, errOnPurpose), "%v", err)
		})
	}
	b.t.Cleanup(func() { // with the database's own grants, which are gone by now
		_, _ = b.db["p1"].Exec(context.Background(), "DROP OWNED BY "+producer+"; DROP ROLE "+producer)
	})
}

var errOnPurpose = errors.New("on purpose")

// TestEnqueueTx: any transaction on the tenant's database takes a job in, whichever user it runs
// as, and the job is there if and when it is committed.
func TestEnqueueTx(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	c := b.client(b.cfg)
	const count = "SELECT (SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.timer_job)"
	for _, commits := range []bool{true, false} {
		inEveryTx(b, c, func(t *testing.T, add enqueueing, exec func(string) error) error {
			at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
			first, err := add(write{1}, tenure.OnQueue("mail"), tenure.Priority(-7), tenure.MaxAttempts(3), tenure.Meta(map[string]any{"a": "é"}), tenure.Correlation("c"))
			require.NoError(t, err)
			require.Equal(t, 1, store.PoolOf(int64(first.ID)))
			keyed, err := add(write{2}, tenure.Unique("u"))
			require.NoError(t, err)
			require.False(t, keyed.Duplicate)
			again, err := add(write{2}, tenure.Unique("u"))
			require.NoError(t, err)
			require.Equal(t, tenure.Enqueued{ID: keyed.ID, Duplicate: true}, again)
			for _, later := range []tenure.Option{tenure.In(90 * time.Minute), tenure.At(at)} {
				_, err = add(write{3}, later)
				require.NoError(t, err)
			}
			require.NoError(t, exec("SELECT 1"))
			require.Zero(t, b.count("p1", count), "not before it is committed")
			t.Cleanup(func() {
				if !commits {
					require.Zero(t, b.count("p1", count))
					return
				}
				require.Equal(t, 4, b.count("p1", count))
				require.Equal(t, 1, b.count("p1", `SELECT count(*) FROM tenure.job WHERE id = $1 AND tenant_id = 't1' AND kind = 'write' AND queue = 'mail'
					AND priority = -7 AND max_attempts = 3 AND meta = '{"a": "é"}' AND correlation_id = 'c' AND payload = '{"n": 1}'`, int64(first.ID)))
				require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.timer_job WHERE due_at = $1", at))
				require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.timer_job WHERE due_at - now() BETWEEN '89 minutes' AND '91 minutes'"))
			})
			if !commits {
				return errOnPurpose
			}
			return nil
		})
	}
}

// unreleased is a transaction whose connection is lost when a savepoint within it is released.
type unreleased struct{ pgx.Tx }

func (u unreleased) Begin(ctx context.Context) (pgx.Tx, error) {
	within, err := u.Tx.Begin(ctx)
	return unreleased{within}, err
}

func (unreleased) Commit(context.Context) error { return io.ErrUnexpectedEOF }

// TestEnqueueManyTx: many jobs are added in a transaction, in order, or none of them, and it goes on.
func TestEnqueueManyTx(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 3)
	c := b.node(b.cfg, b.registry(nil)).Client()
	ctx := tenancy.For(t.Context(), "t1")
	far := tenure.In(time.Hour)
	count := func(where string) int {
		return b.count("p1", "SELECT (SELECT count(*) FROM tenure.job WHERE "+where+") + (SELECT count(*) FROM tenure.timer_job WHERE "+where+")")
	}
	entries := []tenure.Entry{{Args: write{0}, Options: []tenure.Option{far, tenure.Unique("u")}}, {Args: write{0}, Options: []tenure.Option{far, tenure.Unique("u")}}}
	for i := range 120 {
		entries = append(entries, tenure.Entry{Tenant: "t3", Args: write{i}, Options: []tenure.Option{far}})
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec} {
		cfg := b.db["p1"].Config()
		cfg.ConnConfig.DefaultQueryExecMode = mode
		db, err := pgxpool.NewWithConfig(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(db.Close)
		require.NoError(t, pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			_, err := c.EnqueueManyTx(ctx, tx, []tenure.Entry{{Args: write{1}, Options: []tenure.Option{far}}, {Tenant: b.tenantIn("p2"), Args: write{1}}})
			require.ErrorIs(t, err, tenure.ErrWrongPool)
			require.ErrorContains(t, err, "the tenants live in the pools p1, p2")
			_, err = c.EnqueueManyTx(ctx, tx, []tenure.Entry{{Args: write{1}, Options: []tenure.Option{far}}, {Args: write{2}, Options: []tenure.Option{tenure.After(7)}}})
			require.ErrorContains(t, err, `entry 1: enqueue write for tenant "t1"`)
			none, err := c.EnqueueManyTx(ctx, tx, nil)
			require.NoError(t, err)
			require.Empty(t, none)
			added, err := c.EnqueueManyTx(ctx, tx, entries)
			require.NoError(t, err)
			require.Len(t, added, len(entries))
			require.Equal(t, tenure.Enqueued{ID: added[0].ID, Duplicate: true}, added[1])
			for i := range 120 {
				if i%15 == 0 {
					var n int
					require.NoError(t, tx.QueryRow(ctx, "SELECT (payload ->> 'n')::integer FROM tenure.timer_job WHERE id = $1", int64(added[2+i].ID)).Scan(&n))
					require.Equal(t, i, n)
				}
			}
			require.Zero(t, count("true"), "not before it is committed")
			_, err = c.EnqueueManyTx(ctx, unreleased{tx}, entries[2:4])
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			return nil
		}))
		require.Equal(t, []int{1, 120}, []int{count("tenant_id = 't1'"), count("tenant_id = 't3'")})
		b.exec("p1", "DELETE FROM tenure.timer_job; DELETE FROM tenure.unique_job")
	}

	// In a tenant's role, which is news to the ledger.
	b.exec("p1", "UPDATE tenure.tenant_role SET role_name = 'postgres'")
	err := c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := c.EnqueueManyTx(ctx, tx, []tenure.Entry{{Args: write{1}, Options: []tenure.Option{far}}, {Tenant: "t3", Args: write{1}, Options: []tenure.Option{far}}})
		require.ErrorIs(t, err, tenure.ErrNotAllowed)
		_, err = c.EnqueueManyTx(ctx, tx, []tenure.Entry{{Args: write{1}, Options: []tenure.Option{far}}, {Args: write{2}, Options: []tenure.Option{far}}})
		return err
	})
	require.NoError(t, err)
	require.Equal(t, []int{2, 0}, []int{count("tenant_id = 't1'"), count("tenant_id = 't3'")})
}

// TestEnqueueTxForItsOwnTenant: a transaction in a tenant's role takes in its tenant's jobs
// and nobody else's, and goes on after it has refused one.
func TestEnqueueTxForItsOwnTenant(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	r := b.registry(nil)
	refused := make(chan error, 1)
	var c *tenure.Client
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[relay]) error {
		_, err := c.EnqueueTx(tenancy.For(ctx, tenancy.ID(j.Args.For)), tx, write{1})
		if err != nil {
			refused <- err
		}
		_, err = tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID))
		return err
	})
	c = b.node(b.cfg, r).Client()
	ctx := tenancy.For(t.Context(), "t1")
	_, err := c.Enqueue(ctx, relay{For: "t1"})
	require.NoError(t, err)
	b.finished(c, 2)
	require.Equal(t, 2, b.count("p1", "SELECT count(*) FROM t1.effect"))
	_, err = c.Enqueue(ctx, relay{For: "t2"})
	require.NoError(t, err)
	b.finished(c, 3)
	require.Equal(t, 3, b.count("p1", "SELECT count(*) FROM t1.effect"), "the job that tried it was committed")
	require.Zero(t, b.count("p1", "SELECT count(*) FROM t2.effect"))
	err = <-refused
	require.ErrorIs(t, err, tenure.ErrNotAllowed)
	require.True(t, tenure.Refused(err))
	require.ErrorContains(t, err, `enqueue write for tenant "t2"`)
	require.ErrorContains(t, err, "its own is "+rolePrefix+"t2")
}

// TestALedgerLearnsRoles: a tenant gets a role, or another one, in the configuration, and
// may enqueue under it without anybody telling the database.
func TestALedgerLearnsRoles(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	roleOf := func(tenant string) (role string) {
		require.NoError(t, b.db["p1"].QueryRow(t.Context(), "SELECT coalesce((SELECT role_name FROM tenure.tenant_role WHERE tenant_id = $1), '')", tenant).Scan(&role))
		return role
	}
	c := b.client(b.cfg)
	require.Equal(t, []string{rolePrefix + "{tenant}", rolePrefix + "t1", rolePrefix + "t2"}, []string{roleOf(""), roleOf("t1"), roleOf("t2")}, "when it is opened")
	b.exec("p1", "UPDATE tenure.tenant_role SET role_name = 'postgres'")
	ctx := tenancy.For(t.Context(), "t1")
	err := c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := c.EnqueueTx(ctx, tx, write{1})
		return err
	})
	require.NoError(t, err)
	require.Equal(t, rolePrefix+"t1", roleOf("t1"), "when it is needed")
	require.Equal(t, "postgres", roleOf("t2"))

	b.exec("p1", "GRANT USAGE ON SCHEMA t1 TO PUBLIC")
	cfg := b.cfg
	cfg.Tenants.Role = "" // schemas only
	plainly := b.client(cfg)
	require.NoError(t, plainly.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := plainly.EnqueueTx(tenancy.For(ctx, "t2"), tx, write{1})
		return err
	}), "everything runs as the nodes' user, who may enqueue for everybody")
	require.Equal(t, 2, b.count("p1", "SELECT count(*) FROM tenure.job"))
}

// TestGrantForgetsRoles: a role that a tenant had once, by the configuration, may not
// enqueue for it for ever.
func TestGrantForgetsRoles(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	owners := b.cfg
	owners.Pools = map[string]routing.PoolConfig{"p1": {DSN: b.db["p1"].Config().ConnString(), MaxConns: 16}}
	recorded := func() (all []string) {
		require.NoError(t, b.db["p1"].QueryRow(t.Context(), "SELECT array_agg(tenant_id || '=' || role_name ORDER BY tenant_id) FROM tenure.tenant_role").Scan(&all))
		return all
	}
	grant := func(forgotten ...string) {
		t.Helper()
		shown, err := operate.MissingGrants(t.Context(), owners, nil)
		require.NoError(t, err)
		done, err := operate.Grant(t.Context(), owners, nil)
		require.NoError(t, err)
		require.ElementsMatch(t, forgotten, done[0].Forgotten)
		require.Equal(t, done[0].Forgotten, shown[0].Forgotten)
	}
	b.exec("p1", "INSERT INTO tenure.tenant_role VALUES ('t1', 'special'), ('elsewhere', 'special')")
	owners.Tenants.Table = &routing.TableConfig{Pool: "p1", Query: "SELECT pool, schema_name FROM app.tenant WHERE id = $1"}
	grant("t1")
	require.Equal(t, []string{"=tenure_test_{tenant}", "elsewhere=special", "t1=tenure_test_t1", "t2=tenure_test_t2"}, recorded(), "the table may know better")
	owners.Tenants.Table = nil
	grant("elsewhere")
	owners.Tenants.Role = ""
	owners.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"t1": {Pool: "p1", Role: "tenure_test_t1"}, "t2": {Pool: "p1"}}
	grant("", "t2")
	require.Equal(t, []string{"t1=tenure_test_t1"}, recorded())
	grant()
}

// TestAClientThatOnlyEnqueues has a user of its own, who may do nothing else: clients come
// into service with it, nodes do not.
func TestAClientThatOnlyEnqueues(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	user := "tenure_test_web_" + strings.ToLower(rand.Text()[:8])
	b.exec("p1", "CREATE ROLE "+user+" LOGIN NOINHERIT PASSWORD 'secret'")
	t.Cleanup(func() {
		_, _ = b.db["p1"].Exec(context.Background(), "DROP OWNED BY "+user+"; DROP ROLE "+user)
	})
	for _, grant := range []string{"SELECT ON tenure.pool, tenure.migration, tenure.tenant, tenure.kind_queue", "INSERT (tenant_id) ON tenure.job"} { // as in docs/privileges.md
		b.exec("p1", "GRANT "+grant+" TO "+user)
	}
	web := b.cfg
	web.Pools = map[string]routing.PoolConfig{"p1": {DSN: storetest.As(b.db["p1"].Config().ConnString(), user), MaxConns: 16}}
	c := b.client(web)
	require.Empty(t, c.Operator().Pools().Unfit())
	ctx := tenancy.For(t.Context(), "t1")
	_, err := c.Enqueue(ctx, write{1})
	require.NoError(t, err)
	_, err = c.Operator().Jobs().Cancel(ctx, 1)
	require.ErrorContains(t, err, "permission denied")
	require.False(t, b.log.says("could not be told which roles"))

	n, err := tenure.New(web, b.registry(nil), tenure.WithLogger(b.log.logger("web")))
	require.NoError(t, err)
	require.ErrorContains(t, n.Start(t.Context()), "its user lacks privileges on the ledger")
	b.finished(b.start(b.named("n"), b.registry(nil)).Client(), 1)
}

// TestGrant: an owner migrates, and another user, who was given just what is needed, runs
// nodes; the configuration tells which roles tenants have.
func TestGrant(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	user := "tenure_test_new_" + strings.ToLower(rand.Text()[:8])
	b.exec("p1", "CREATE ROLE "+user+" LOGIN NOINHERIT PASSWORD 'secret'")
	t.Cleanup(func() {
		_, _ = b.db["p1"].Exec(context.Background(), "DROP OWNED BY "+user+"; DROP ROLE "+user)
	})
	dsn := b.db["p1"].Config().ConnString()
	owners, users := b.cfg, b.named("n")
	at := func(dsn string) map[string]routing.PoolConfig {
		return map[string]routing.PoolConfig{"p1": {DSN: dsn, MaxConns: 16}}
	}
	owners.Pools, users.Pools = at(dsn), at(storetest.As(dsn, user))

	missing, err := operate.MissingGrants(t.Context(), owners, []string{user})
	require.NoError(t, err)
	again, err := operate.MissingGrants(t.Context(), owners, []string{user})
	require.NoError(t, err)
	require.Equal(t, missing, again, "it changes nothing")
	role := fmt.Sprintf("GRANT %st1 TO %s", rolePrefix, user)
	if b.count("p1", "SELECT current_setting('server_version_num')::integer") >= 160000 {
		role += " WITH INHERIT FALSE, SET TRUE"
	}
	require.Contains(t, missing[0].Statements, role)
	done, err := operate.Grant(t.Context(), owners, []string{user})
	require.NoError(t, err)
	require.Equal(t, missing, done)
	done, err = operate.Grant(t.Context(), owners, []string{user})
	require.NoError(t, err)
	require.Empty(t, done[0].Statements)

	// A migration whose steps were committed, and that was interrupted then.
	b.exec("p1", "REVOKE ALL ON tenure.tenant_role FROM "+user)
	migrated, err := operate.MigrateAll(t.Context(), owners, operate.MigrateOptions{})
	require.NoError(t, err)
	require.Empty(t, migrated[0].Steps)
	require.Equal(t, []string{"GRANT SELECT, INSERT, UPDATE, DELETE ON tenure.tenant_role TO " + user}, migrated[0].Grants)
	migrated, err = operate.MigrateAll(t.Context(), owners, operate.MigrateOptions{})
	require.NoError(t, err)
	require.Empty(t, migrated[0].Grants)
	missing, err = operate.MissingGrants(t.Context(), owners, nil)
	require.NoError(t, err)
	require.Contains(t, missing[0].Users, user)
	require.Empty(t, missing[0].Statements, "migrate gave it to all who were named")

	n := b.start(users, b.registry(nil))
	_, err = n.Client().Enqueue(tenancy.For(t.Context(), "t1"), write{1})
	require.NoError(t, err)
	b.finished(n.Client(), 1)
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM t1.effect"))
	n.stop()

	_, err = operate.Grant(t.Context(), users, []string{user})
	require.NoError(t, err, "who needs nothing need not be allowed to give it")
	_, err = operate.Grant(t.Context(), users, []string{"pg_monitor"})
	require.ErrorContains(t, err, "connect as the ledger's owner")
	for _, grant := range []func(context.Context, config.Config, []string, ...string) ([]operate.PoolGrants, error){operate.Grant, operate.MissingGrants} {
		_, err = grant(t.Context(), owners, []string{"tenure_test_t1"})
		require.ErrorContains(t, err, `user "tenure_test_t1" is the role of tenant "t1"`)
	}

	// Somebody has a part of what nodes need, and was not named.
	b.exec("p1", "DELETE FROM tenure.runtime_user WHERE user_name = $1", user)
	b.exec("p1", "REVOKE ALL ON tenure.tenant_role FROM "+user)
	migrated, err = operate.MigrateAll(t.Context(), owners, operate.MigrateOptions{})
	require.NoError(t, err)
	require.Empty(t, migrated[0].Grants)
	require.Len(t, migrated[0].Holders, 1)
	require.Equal(t, user, migrated[0].Holders[0].User)
	unnamed, err := tenure.New(users, b.registry(nil), tenure.WithLogger(b.log.logger("unnamed")))
	require.NoError(t, err)
	require.ErrorContains(t, unnamed.Start(t.Context()), "tenure migrate --pool p1 --grants --runtime "+user)
	_, err = operate.Grant(t.Context(), owners, []string{user}, "p2")
	require.ErrorContains(t, err, `pool "p2" is not under pools`)
}
