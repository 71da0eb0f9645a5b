package docs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/jobtest"
)

// The Tenure code of the page is built, and its test passes.
func TestFromRiver_code(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	dir, files := t.TempDir(), 0
	for _, b := range blocks(t, "from-river.md") {
		if b.language == "go" {
			require.NotEmpty(t, b.file, "%s", b.text)
			require.NoError(t, os.WriteFile(filepath.Join(dir, b.file), []byte(b.text), 0o600))
			files++
		}
	}
	require.Equal(t, 2, files)
	writeModule(t, root, dir)
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-ldflags=-s -w", "-mod=mod", ".")
	cmd.WaitDelay = time.Minute // for what it has left running
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

type riverInvoice struct {
	Invoice int64 `json:"invoice"`
}

func (riverInvoice) Kind() string { return "invoice.send" }

// The page's SQL moves what waits in a table such as River's, once, and the jobs run.
func TestFromRiver_moves(t *testing.T) {
	t.Parallel()
	var ran []int64
	acme, env, dsn := mover(t, `
		CREATE TYPE river_job_state AS ENUM ('available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled');
		CREATE TABLE river_job (id bigserial PRIMARY KEY, state river_job_state NOT NULL DEFAULT 'available', attempt smallint NOT NULL DEFAULT 0,
			max_attempts smallint NOT NULL, attempted_at timestamptz, created_at timestamptz NOT NULL DEFAULT now(), finalized_at timestamptz,
			scheduled_at timestamptz NOT NULL DEFAULT now(), priority smallint NOT NULL DEFAULT 1, args jsonb NOT NULL, attempted_by text[],
			errors jsonb[], kind text NOT NULL, metadata jsonb NOT NULL DEFAULT '{}', queue text NOT NULL DEFAULT 'default',
			tags varchar(255)[] NOT NULL DEFAULT '{}', unique_key bytea, unique_states bit(8));
		INSERT INTO river_job (state, attempt, max_attempts, scheduled_at, priority, args, kind, queue, tags) VALUES
			('available', 0, 25, now(), 1, '{"invoice": 1}', 'invoice.send', 'mail', '{eu}'),
			('scheduled', 0, 25, '2099-01-01 00:00+00', 4, '{"invoice": 2}', 'invoice.send', 'default', '{}'),
			('retryable', 3, 5, '2099-01-02 00:00+00', 2, '{"invoice": 3}', 'invoice.send', 'default', '{}'),
			('running', 1, 25, now(), 1, '{"invoice": 4}', 'invoice.send', 'default', '{}'),
			('available', 0, 25, now(), 1, '{}', 'other', 'default', '{}')`,
		func(r *job.Registry) {
			job.Handle(r, func(_ context.Context, j *job.Job[riverInvoice]) error {
				ran = append(ran, j.Args.Invoice)
				return nil
			})
		})
	move(t, dsn, "from-river.md")
	move(t, dsn, "from-river.md") // nothing more
	require.Equal(t, []string{
		`river:1 invoice.send {"invoice": 1} mail 0 -`,
		`river:2 invoice.send {"invoice": 2} default -3 2099-01-01`,
		`river:3 invoice.send {"invoice": 3} default -1 2099-01-02 2`,
	}, moved(acme))
	require.Equal(t, []int64{4, 5}, jobtest.Value[[]int64](acme, "SELECT array_agg(id ORDER BY id) FROM river_job"))
	require.Equal(t, 1, env.Drain(t).Count(job.Done))
	require.Equal(t, []int64{1}, ran)
}

type flowableInvoice struct {
	Config   string `json:"config"`
	Instance string `json:"process_instance"`
}

func (flowableInvoice) Kind() string { return "send-invoice" }

// The page's SQL moves what waits in tables such as Flowable's, once, and the jobs run.
func TestFromFlowable_moves(t *testing.T) {
	t.Parallel()
	const columns = `id_ varchar(64) NOT NULL PRIMARY KEY, rev_ integer, category_ varchar(255), type_ varchar(255) NOT NULL, exclusive_ boolean,
		execution_id_ varchar(64), process_instance_id_ varchar(64), proc_def_id_ varchar(64), element_id_ varchar(255), correlation_id_ varchar(255),
		exception_stack_id_ varchar(64), exception_msg_ varchar(4000), duedate_ timestamp, repeat_ varchar(255), handler_type_ varchar(255),
		handler_cfg_ varchar(4000), custom_values_id_ varchar(64), create_time_ timestamp, tenant_id_ varchar(255) DEFAULT ''`
	const locked = ", lock_exp_time_ timestamp, lock_owner_ varchar(255), retries_ integer"
	ran := make(chan flowableInvoice, 10)
	acme, env, dsn := mover(t, `
		CREATE TABLE act_ru_job (`+columns+locked+`);
		CREATE TABLE act_ru_timer_job (`+columns+locked+`);
		CREATE TABLE act_ru_deadletter_job (`+columns+`);
		CREATE TABLE act_ge_bytearray (id_ varchar(64) NOT NULL PRIMARY KEY);
		INSERT INTO act_ge_bytearray VALUES ('s1'), ('s2'), ('a variable');
		INSERT INTO act_ru_job (id_, type_, exclusive_, process_instance_id_, handler_type_, handler_cfg_, create_time_, retries_, lock_exp_time_) VALUES
			('a', 'message', true, 'p1', 'send-invoice', '42', '2026-01-01', 3, NULL),
			('a2', 'message', true, 'p12', 'send-invoice', '43', '2026-01-02', 3, '2026-01-02'), -- of a node that is gone
			('b', 'message', true, 'p2', 'send-invoice', '43', '2026-01-02', 3, '2199-01-02'),
			('c', 'message', true, 'p3', 'async-continuation', NULL, '2026-01-03', 3, NULL);
		INSERT INTO act_ru_timer_job (id_, type_, process_instance_id_, handler_type_, handler_cfg_, create_time_, retries_, duedate_, repeat_, exception_msg_, exception_stack_id_) VALUES
			('d', 'timer', 'p4', 'send-invoice', '44', '2026-01-04', 2, '2099-01-01', NULL, 'no paper', 's1'),
			('e', 'timer', 'p5', 'send-invoice', '45', '2026-01-05', 2, '2099-01-01', 'R3/PT5M', NULL, NULL);
		INSERT INTO act_ru_deadletter_job (id_, type_, process_instance_id_, handler_type_, handler_cfg_, create_time_, tenant_id_, exception_msg_, exception_stack_id_) VALUES
			('f', 'message', 'p6', 'send-invoice', '46', '2026-01-06', 'acme', 'no ink', 's2')`,
		func(r *job.Registry) {
			job.Handle(r, func(_ context.Context, j *job.Job[flowableInvoice]) error {
				ran <- j.Args
				return nil
			})
		})
	move(t, dsn, "from-flowable.md")
	move(t, dsn, "from-flowable.md") // nothing more
	in10 := jobtest.Value[string](acme, "SELECT ((now() + interval '10 years') AT TIME ZONE 'UTC')::date::text")
	require.Equal(t, []string{
		`p1 send-invoice {"config": "42", "process_instance": "p1"} default 0 -`,
		`p12 send-invoice {"config": "43", "process_instance": "p12"} default 0 -`,
		`p4 send-invoice {"config": "44", "process_instance": "p4"} default 0 2099-01-01 2`,
		`p6 send-invoice {"config": "46", "process_instance": "p6"} default 0 ` + in10 + ` 1`,
	}, moved(acme))
	require.Equal(t, "p1 p12", jobtest.Value[string](acme, "SELECT string_agg(exclusive_key, ' ' ORDER BY id) FROM tenure.job WHERE meta @> '{\"tenure:skip_retrying\": true}'"))
	require.Equal(t, "d no paper", jobtest.Value[string](acme, "SELECT concat_ws(' ', meta->>'flowable_id', meta->>'flowable_error') FROM tenure.timer_job WHERE correlation_id = 'p4'"))
	require.Equal(t, "a variable", jobtest.Value[string](acme, "SELECT string_agg(id_, ' ') FROM act_ge_bytearray"))
	require.Equal(t, "b c e", jobtest.Value[string](acme, `SELECT string_agg(id_, ' ' ORDER BY id_) FROM (SELECT id_ FROM act_ru_job UNION ALL
		SELECT id_ FROM act_ru_timer_job UNION ALL SELECT id_ FROM act_ru_deadletter_job) AS left_over`))
	env.Nodes(t, 1).Wait()
	require.Len(t, ran, 2)
	require.ElementsMatch(t, []flowableInvoice{{"42", "p1"}, {"43", "p12"}}, []flowableInvoice{<-ran, <-ran})
}

// mover is a tenant whose schema has what another executor left, and a connection string that leads there.
func mover(t *testing.T, schema string, register func(*job.Registry)) (acme *jobtest.Tenant, env *jobtest.Env, dsn string) {
	env = jobtest.New(t, jobtest.Tenants("acme"), jobtest.Register(register), jobtest.Schema(schema),
		jobtest.Migrations(func(_ context.Context, within string) error {
			dsn = within
			return nil
		}))
	return env.Tenant(t, "acme"), env, dsn
}

// move runs the SQL of a page as it stands.
func move(t *testing.T, dsn, page string) {
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	ran := 0
	for _, b := range blocks(t, page) {
		if b.language == "sql" {
			_, err := conn.PgConn().Exec(t.Context(), b.text).ReadAll()
			require.NoError(t, err)
			ran++
		}
	}
	require.Equal(t, 1, ran)
}

// moved are the jobs that wait, now or for later.
func moved(acme *jobtest.Tenant) []string {
	return jobtest.Value[[]string](acme, `SELECT array_agg(concat_ws(' ', correlation_id, kind, payload, queue, priority,
			coalesce((due_at AT TIME ZONE 'UTC')::date::text, '-'), max_attempts) ORDER BY correlation_id)
		FROM (SELECT correlation_id, kind, payload, queue, priority, NULL::timestamptz AS due_at, max_attempts FROM tenure.job
			UNION ALL SELECT correlation_id, kind, payload, queue, priority, due_at, max_attempts FROM tenure.timer_job) AS jobs`)
}
