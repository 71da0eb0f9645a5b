package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// What a program in any language may do to its tenant's jobs, in its tenant's role, and to no
// others.
func TestOperateBySQL(t *testing.T) {
	t.Parallel()
	owner, conn := asTenants(t)
	ctx := t.Context()
	add := func(table, tenant, more, values string) (id int64) {
		t.Helper()
		require.NoError(t, owner.QueryRow(ctx, "INSERT INTO tenure."+table+" (tenant_id, queue, kind, payload, attempt, max_attempts, losses"+more+") VALUES ('"+tenant+"', 'q', 'k', '{}', 2, 9, 1"+values+") RETURNING id").Scan(&id))
		return id
	}
	waiting, running, claimed := add("job", "acme", "", ""), add("job", "acme", "", ""), add("job", "acme", "", "")
	timer, dead := add("timer_job", "acme", ", due_at, unique_key", ", now() + interval '1 hour', 'u'"), add("dead_letter_job", "acme", ", origin, error, unique_key", ", 'job', 'boom', 'd'")
	aside, theirs := add("suspended_job", "acme", ", origin", ", 'job'"), add("job", "globex", "", "")
	theirTimer, theirDead := add("timer_job", "globex", ", due_at", ", now()"), add("dead_letter_job", "globex", ", origin, error", ", 'job', 'x'")
	execute(t, owner, "INSERT INTO tenure.unique_job SELECT tenant_id, unique_key, id FROM tenure.timer_job WHERE unique_key IS NOT NULL")
	for id, started := range map[int64]string{running: "now()", claimed: "NULL"} {
		_, err := owner.Exec(ctx, "INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) SELECT $2, turn, ARRAY[id], "+started+" FROM tenure.job WHERE id = $1", id, uuid.New())
		require.NoError(t, err)
	}
	_, err := owner.Exec(ctx, "INSERT INTO tenure.job_error (job_id, attempt, node, error) VALUES ($1, 2, 'a', 'timed out')", timer)
	require.NoError(t, err)

	states := func() map[int64]string {
		t.Helper()
		rows, err := conn.Query(ctx, "SELECT id, concat_ws(' ', state, CASE WHEN cancelling THEN 'cancelling' END, error) FROM tenure.job_status")
		require.NoError(t, err)
		all := map[int64]string{}
		var id int64
		var state string
		_, err = pgx.ForEachRow(rows, []any{&id, &state}, func() error { all[id] = state; return nil })
		require.NoError(t, err)
		return all
	}
	cancel := func(id int64) (said *string) {
		t.Helper()
		require.NoError(t, conn.QueryRow(ctx, "SELECT tenure.cancel($1)", id).Scan(&said))
		return said
	}
	retry := func(id int64) (done bool, err error) {
		return done, conn.QueryRow(ctx, "SELECT tenure.retry($1)", id).Scan(&done)
	}
	require.Len(t, states(), 9, "the runtime user sees all")
	execute(t, conn, "SET ROLE "+roleAcme)
	execute(t, conn, "SET app.tenant_id = 'globex'") // proves nothing
	want := map[int64]string{waiting: "waiting", running: "running", claimed: "claimed", timer: "retrying timed out", dead: "dead boom", aside: "suspended"}
	require.Equal(t, want, states())
	_, err = conn.Exec(ctx, "SELECT FROM tenure.job")
	require.Equal(t, "42501", code(err), "nothing of the ledger but this")

	for _, id := range []int64{theirs, theirTimer, theirDead, 99} {
		require.Nil(t, cancel(id))
		done, err := retry(id)
		require.NoError(t, err)
		require.False(t, done)
	}
	require.Equal(t, "cancelling", *cancel(waiting))
	require.Equal(t, "cancelling", *cancel(running))
	require.Equal(t, "cancelling", *cancel(running), "once more")
	want[waiting], want[running] = "waiting cancelling", "running cancelling"
	require.Equal(t, want, states())
	done, err := retry(waiting)
	require.NoError(t, err)
	require.False(t, done, "it waits already")

	execute(t, conn, "LISTEN tenure_enqueued")
	done, err = retry(dead)
	require.NoError(t, err)
	require.True(t, done)
	hear, stop := context.WithTimeout(ctx, patience)
	defer stop()
	told, err := conn.WaitForNotification(hear)
	require.NoError(t, err)
	require.Empty(t, told.Payload, "anybody may listen")
	execute(t, conn, "UNLISTEN *")
	_, row := stands(t, owner, job.ID(dead))
	require.Equal(t, []any{0.0, 0.0, "d"}, []any{row["attempt"], row["losses"], row["unique_key"]})
	require.Equal(t, "cancelled", *cancel(timer))
	require.Equal(t, "cancelled", *cancel(aside))
	want[dead], want[timer], want[aside] = "waiting", "cancelled", "cancelled"
	require.Equal(t, want, states())
	require.Nil(t, cancel(timer), "it has ended")
	var keys int
	require.NoError(t, owner.QueryRow(ctx, "SELECT count(*) FROM tenure.unique_job WHERE key = 'u'").Scan(&keys))
	require.Zero(t, keys)

	// In the caller's transaction, with his other work.
	again := add("dead_letter_job", "acme", ", origin, error, unique_key", ", 'job', 'x', 'd'")
	_, err = retry(again)
	require.Equal(t, "23505", code(err), "the job that was retried has its key")
	later := add("timer_job", "acme", ", due_at", ", now() + interval '1 hour'")
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	var said string
	require.NoError(t, tx.QueryRow(ctx, "SELECT tenure.cancel($1, keep => false)", later).Scan(&said))
	require.NoError(t, tx.Rollback(ctx))
	require.Equal(t, "retrying", states()[later])
	require.NoError(t, conn.QueryRow(ctx, "SELECT tenure.cancel($1, keep => false)", later).Scan(&said))
	require.NotContains(t, states(), later)

	execute(t, owner, "INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('acme', 'moved', 'p9')")
	_, err = retry(again)
	require.Equal(t, "55000", code(err))
	_, err = conn.Exec(ctx, "SELECT tenure.cancel($1)", again)
	require.Equal(t, "55000", code(err))
	require.True(t, strings.Contains(err.Error(), "tenant acme is between two pools"))
}

// Looking at one job reads no table as a whole.
func TestJobStatusReadsOneJob(t *testing.T) {
	t.Parallel()
	owner, conn := asTenants(t)
	execute(t, owner, "INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT 'acme', 'q', 'k', '{}' FROM generate_series(1, 20000)")
	execute(t, owner, "ANALYZE tenure.job")
	execute(t, conn, "SET ROLE "+roleAcme)
	rows, err := conn.Query(t.Context(), "EXPLAIN (COSTS off) SELECT state FROM tenure.job_status WHERE id = 4711")
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	plan := strings.Join(lines, "\n")
	require.Contains(t, plan, "job_pkey")
	require.NotContains(t, plan, "Seq Scan on job j")
}

// Nobody learns by a plan how many jobs others have of a kind, nor asks the view's functions whose role is whose.
func TestJobStatusTellsNothingOfOthers(t *testing.T) {
	t.Parallel()
	owner, conn := asTenants(t)
	for _, table := range []string{"job (tenant_id, queue, kind, payload, correlation_id, unique_key, priority", "timer_job (due_at, tenant_id, queue, kind, payload, correlation_id, unique_key, priority",
		"dead_letter_job (origin, error, tenant_id, queue, kind, payload, correlation_id, unique_key, priority"} {
		name, _, _ := strings.Cut(table, " ")
		first := map[string]string{"job": "", "timer_job": "now(), ", "dead_letter_job": "'job', 'secret', "}[name]
		execute(t, owner, "INSERT INTO tenure."+table+") SELECT "+first+"'globex', 'secret', 'secret', '{}', 'secret', 'secret' || n, 7 FROM generate_series(1, 500) n")
		execute(t, owner, "ANALYZE tenure."+name)
	}
	execute(t, owner, "INSERT INTO tenure.tenant_role VALUES ('', 't_{tenant}')")
	execute(t, conn, "SET ROLE "+roleAcme)
	plan := func(options, condition string) string {
		t.Helper()
		rows, err := conn.Query(t.Context(), "EXPLAIN ("+options+") SELECT count(*) FROM tenure.job_status WHERE "+condition, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return strings.Join(lines, "\n")
	}
	for column, values := range map[string][2]string{"tenant": {"'globex'", "'nobody'"}, "kind": {"'secret'", "'public'"}, "queue": {"'secret'", "'public'"},
		"correlation_id": {"'secret'", "'public'"}, "unique_key": {"'secret1'", "'public1'"}, "error": {"'secret'", "'public'"}, "priority": {"7", "3"}, "attempt": {"0", "5"}, "max_attempts": {"9", "5"}} {
		for _, options := range []string{"ANALYZE, BUFFERS off, COSTS off, TIMING off, SUMMARY off", "COSTS on"} {
			there, nowhere := plan(options, column+" = "+values[0]), plan(options, column+" = "+values[1])
			require.Equal(t, strings.ReplaceAll(nowhere, " = "+values[1], " = "+values[0]), there, column)
		}
	}
	for _, sql := range []string{"SELECT tenure.job_allowed('" + roleGlobex + "', 'globex', 'SELECT', true)", "SELECT tenure.seen_by('" + roleGlobex + "', gen_random_uuid())", "SELECT key FROM tenure.view_key"} {
		_, err := conn.Exec(t.Context(), sql)
		require.Equal(t, "42501", code(err), "%s: %v", sql, err)
	}
}

// Who is whose role says what is seen, by names, by a pattern, and by a pattern that is one role for all.
func TestJobStatusIsForOnesOwnTenants(t *testing.T) {
	t.Parallel()
	owner, _ := asTenants(t)
	name := role(t, owner, "own", "")
	execute(t, owner, "INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT tenant, 'q', 'k', '{}' FROM unnest('{acme,globex,"+strings.TrimPrefix(name, "own_")+",other}'::text[]) AS tenant")
	conn := connectTo(t, owner.Config().ConnString())
	execute(t, conn, "SET ROLE "+name)
	sees := func() (tenants string) {
		t.Helper()
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT coalesce(string_agg(t, ',' ORDER BY t), '') FROM (SELECT replace(tenant, $1, 'mine') AS t FROM tenure.job_status) s", strings.TrimPrefix(name, "own_")).Scan(&tenants))
		return tenants
	}
	require.Empty(t, sees())
	execute(t, owner, "INSERT INTO tenure.tenant_role VALUES ('', 'own_{tenant}')")
	require.Equal(t, "mine", sees())
	execute(t, owner, "GRANT "+roleGlobex+" TO "+name)
	require.Equal(t, "globex,mine", sees())
	execute(t, owner, "UPDATE tenure.tenant_role SET role_name = '"+name+"' WHERE tenant_id = ''")
	require.Equal(t, "globex,mine,other", sees(), "all but who has another role")
	execute(t, owner, "REVOKE "+roleGlobex+" FROM "+name+"; INSERT INTO tenure.tenant_role VALUES ('other', 'gone')")
	require.Equal(t, "mine", sees())
	execute(t, owner, "UPDATE tenure.tenant_role SET role_name = 'gone' WHERE tenant_id = ''")
	require.Empty(t, sees())
}

// A job is put off between two looks of tenure.cancel.
func TestCancelBySQLFollowsAJobThatMoves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue(t, store.NewJob{})
	tx, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `WITH gone AS (DELETE FROM tenure.job RETURNING *),
		asked AS (INSERT INTO tenure.cancel_request (job_id) SELECT id FROM gone) -- which the other's request waits for
		INSERT INTO tenure.timer_job (id, turn, tenant_id, queue, kind, payload, due_at) SELECT id, turn + 1, tenant_id, queue, kind, payload, '9999-12-31' FROM gone`)
	require.NoError(t, err)
	said := make(chan *string, 1)
	go func() {
		var s *string
		if err := b.owner.QueryRow(t.Context(), "SELECT tenure.cancel($1)", int64(id)).Scan(&s); err != nil {
			t.Error(err)
		}
		said <- s
	}()
	b.waits(t)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, "cancelled", *<-said)
}
