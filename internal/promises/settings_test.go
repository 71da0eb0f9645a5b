package promises_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// oddSettings are what databases and roles may have set, for others' sake or by mistake.
var oddSettings = map[string]string{
	"client_encoding": "LATIN1", "DateStyle": "German, DMY", "IntervalStyle": "sql_standard", "TimeZone": "<odd>-100:17",
	"bytea_output": "escape", "extra_float_digits": "-15", "array_nulls": "off", "quote_all_identifiers": "on",
	"transform_null_equals": "on", "backslash_quote": "off", "xmloption": "document", "check_function_bodies": "off",
	"plpgsql.extra_errors": "all", "plpgsql.variable_conflict": "use_column", "exit_on_error": "on", "row_security": "off",
	"search_path": "odd, pg_temp", "synchronous_commit": "off", "client_min_messages": "error",
	"default_transaction_isolation": "serializable", "default_transaction_deferrable": "on",
	"statement_timeout": "1", "lock_timeout": "1", "idle_in_transaction_session_timeout": "1", "idle_session_timeout": "1",
	"enable_indexscan": "off", "enable_indexonlyscan": "off", "enable_nestloop": "off", "enable_sort": "off",
	"join_collapse_limit": "1", "work_mem": "64", "plan_cache_mode": "force_custom_plan", "default_table_access_method": "odd",
}

// setFor sets what is odd in a database, for a role or, "", for everybody but who does it, who keeps what he has.
func setFor(t *testing.T, dsn, role string, odd map[string]string) {
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), "CREATE ACCESS METHOD odd TYPE TABLE HANDLER heap_tableam_handler")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "LOAD 'plpgsql'") // which knows its own
	require.NoError(t, err)
	for name, value := range odd {
		_, err := conn.Exec(t.Context(), `DO $$ BEGIN
			IF '`+role+`' = '' THEN
				EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I SET `+name+` = %L', current_database(), current_setting('`+name+`'));
				EXECUTE format('ALTER DATABASE %I SET `+name+` = %L', current_database(), '`+value+`');
			ELSE
				EXECUTE format('ALTER ROLE %I IN DATABASE %I SET `+name+` = %L', '`+role+`', current_database(), '`+value+`');
			END IF; END $$`)
		require.NoError(t, err, name)
	}
}

type told struct {
	Text string `json:"text"`
}

func (told) Kind() string { return "told" }

// TestWhateverIsSet: jobs run once and with the text that they were given, timers fire, failed runs are tried
// again, and operators see, move and examine it all, whatever a database, a role or a DSN sets. The second
// start is the first that finds what was written before.
func TestWhateverIsSet(t *testing.T) {
	t.Parallel()
	odd := maps.Clone(oddSettings)
	if strings.HasPrefix(t.Name(), "TestThroughAPooler/") { // whose sessions are its own
		maps.DeleteFunc(odd, func(name, _ string) bool { return strings.HasSuffix(name, "_timeout") })
	}
	for by, set := range map[string]func(t *testing.T, dsn string) (more string){
		"the database": func(t *testing.T, dsn string) string {
			setFor(t, dsn, "", odd)
			return ""
		},
		"the role": func(t *testing.T, dsn string) string {
			cfg, err := pgx.ParseConfig(storetest.AsRuntime(dsn))
			require.NoError(t, err)
			setFor(t, dsn, cfg.User, odd)
			return ""
		},
		"the DSN": func(*testing.T, string) (more string) {
			for _, name := range slices.Sorted(maps.Keys(odd)) {
				switch {
				case name == "client_encoding", strings.HasPrefix(name, "plpgsql.var"), strings.HasSuffix(name, "_timeout"), name == "default_table_access_method":
				case name == "plpgsql.extra_errors":
					more += "&" + name + "=all"
				default:
					more += "&" + strings.ToUpper(name) + "=" + url.PathEscape(odd[name])
				}
			}
			return more + "&default_query_exec_mode=simple_protocol&statement_cache_capacity=0&description_cache_capacity=0"
		},
	} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			more := ""
			b := fillTestbed(t, 2, 1, func(name string, number int) string {
				dsn := storetest.DSN(t, name, number)
				more = set(t, dsn)
				return dsn
			})
			for name, p := range b.cfg.Pools {
				p.DSN += more
				if p.TenantDSN != "" {
					p.TenantDSN += more
				}
				b.cfg.Pools[name] = p
			}
			whateverIsSet(b)
		})
	}
}

func whateverIsSet(b *testbed) {
	t := b.t
	const text = "é – ЖЏ\\n'"
	b.prepare("t1", "p2")
	for _, p := range []string{"p1", "p2"} {
		b.exec(p, "CREATE TABLE IF NOT EXISTS t1.said (id bigint, args text, own text, at timestamptz DEFAULT now()); GRANT ALL ON t1.said TO "+rolePrefix+"t1")
	}
	r := b.registry(nil)
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[told]) error {
		var at time.Time
		err := tx.QueryRow(ctx, "INSERT INTO said (id, args, own) VALUES ($1, $2, $3) RETURNING at", int64(j.ID), j.Args.Text, text).Scan(&at)
		if err == nil && j.Attempt == 1 {
			err = errors.New(text)
		}
		return err
	}, job.Retry("R2/PT0.1S"))
	n := b.start(b.named("first"), r)
	n.holds("p1")
	n.stop()
	n = b.start(b.named("second"), r)
	n.holds("p1")
	c := n.Client()
	ctx := tenancy.For(t.Context(), "t1")
	_, err := c.Enqueue(ctx, told{text})
	require.NoError(t, err)
	_, err = c.Enqueue(ctx, told{text}, tenure.In(50*time.Millisecond), tenure.UniqueFor(text, 36*time.Hour), tenure.Tags("é"))
	require.NoError(t, err)
	_, err = c.EnqueueMany(ctx, []tenure.Entry{{Args: told{text}}, {Args: told{text}, Options: []tenure.Option{tenure.In(time.Millisecond)}}})
	require.NoError(t, err)
	require.NoError(t, c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := c.EnqueueTx(ctx, tx, told{text}); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "SELECT tenure.enqueue('t1', 'told', jsonb_build_object('text', $1::text), delay => '20 ms', timeout => '1 h', tags => '{x}')", text)
		return err
	}))
	b.eventually(6, "p1", "SELECT count(*) FROM tenure.completed_job WHERE kind = 'told' AND outcome = 'done'")
	require.Equal(t, 6, b.count("p1", "SELECT count(*) FROM t1.said WHERE args = $1 AND own = $1", text))
	require.Equal(t, 6, b.count("p1", "SELECT count(*) FROM tenure.job_error WHERE error = $1", text))

	listed, err := c.Operator().Jobs().List(t.Context(), operate.JobFilter{State: "done"})
	require.NoError(t, err)
	require.Len(t, listed, 6)
	for _, j := range listed {
		require.JSONEq(t, fmt.Sprintf(`{"text": %q}`, text), string(j.Payload))
		require.Less(t, time.Since(j.CreatedAt).Abs(), time.Hour)
		_, errs, err := c.Operator().Jobs().Get(t.Context(), j.ID)
		require.NoError(t, err)
		require.Len(t, errs, 1)
	}
	e, err := c.Enqueue(ctx, told{text}, tenure.In(time.Hour), tenure.Unique(text+"again"), tenure.Tags("moved"))
	require.NoError(t, err)
	b.move(c, "t1", "p2")
	require.Equal(t, 1, b.count("p2", "SELECT count(*) FROM tenure.timer_job WHERE id = $1 AND due_at > clock_timestamp() + interval '50 min' AND payload->>'text' = $2", int64(e.ID), text))

	found, err := operate.Examine(t.Context(), b.cfg, patience)
	require.NoError(t, err)
	require.Empty(t, found.Partly, "%+v", found.Findings)
	for _, f := range found.Findings {
		require.NotContains(t, f.What, "could not be looked at", "%+v", f)
	}
}

// TestMigrateWhateverIsSet: ledgers are made, and made again, as anywhere else.
func TestMigrateWhateverIsSet(t *testing.T) {
	t.Parallel()
	plain := pgtest.Database(t)
	owner := fmt.Sprintf("odd_owner_%d", time.Now().UnixNano()) // roles belong to the whole server
	conn, err := pgx.Connect(t.Context(), plain)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "DROP OWNED BY "+owner+" CASCADE; DROP ROLE "+owner)
		require.NoError(t, err)
		require.NoError(t, conn.Close(context.Background()))
	})
	_, err = conn.Exec(t.Context(), "CREATE ROLE "+owner+" SUPERUSER LOGIN PASSWORD 'secret'")
	require.NoError(t, err)
	setFor(t, plain, owner, oddSettings)
	cfg := config.Default()
	cfg.Pools = map[string]routing.PoolConfig{"main": {DSN: storetest.As(plain, owner)}}
	for range 2 {
		done, err := operate.MigrateAll(t.Context(), cfg, operate.MigrateOptions{})
		require.NoError(t, err)
		require.Len(t, done, 1)
	}
	require.Equal(t, 1, numberOf(t, config.Config{Pools: map[string]routing.PoolConfig{"main": {DSN: plain}}}, "main"))
	var others int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE relnamespace = 'tenure'::regnamespace AND relkind = 'r' AND amname <> 'heap'").Scan(&others))
	require.Zero(t, others)
}
