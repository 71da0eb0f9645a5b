package promises_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// dirty is a job that leaves something on its connection.
type dirty struct {
	Leave int    `json:"leave"` // index into leftovers
	How   string `json:"how"`   // return, fail, panic
}

func (dirty) Kind() string { return "dirty" }

// look is a job that looks what it finds on its connection.
type look struct{}

func (look) Kind() string { return "look" }

// leftovers is what a handler may do to its session, by mistake.
var leftovers = []string{
	"SET search_path = t1",
	"SET SESSION app.tenant_id = 't1'",
	"SET lock_timeout = '1 s'",
	"SELECT set_config('app.extra', 'of t1', false)",
	"CREATE TEMP TABLE effect (job_id bigint)",
	"SELECT pg_advisory_lock(42)",
	"LISTEN t1",
	"DECLARE c CURSOR WITH HOLD FOR SELECT 1",
	"SET default_transaction_read_only = on",
	"SET TIME ZONE 'Asia/Tokyo'",
	"SELECT nextval('s')",
}

// TestP6TheConnectionIsClean: with one connection for all handlers, a job of another
// tenant finds nothing that the job before it left.
func TestP6TheConnectionIsClean(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	b.exec("p1", "CREATE SEQUENCE t1.s; CREATE SEQUENCE t2.s")
	p1 := b.cfg.Pools["p1"]
	p1.MaxConns = 4 // one of them for handlers
	b.cfg.Pools["p1"] = p1
	found := make(chan string, 1)
	r := job.NewRegistry()
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[dirty]) error {
		if _, err := tx.Exec(ctx, leftovers[j.Args.Leave]); err != nil {
			return err
		}
		switch j.Args.How {
		case "fail":
			return job.Cancel(errors.New("on purpose"))
		case "panic":
			panic("on purpose")
		}
		return nil
	}, job.Retry("R1/PT1S"))
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[look]) error {
		var s string
		err := tx.QueryRow(ctx, `SELECT concat_ws(' ', current_setting('search_path'), current_setting('app.tenant_id'), current_setting('lock_timeout'),
			coalesce(current_setting('app.extra', true), ''), current_schema(), 'effect'::regclass::oid = 't2.effect'::regclass::oid,
			(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), (SELECT count(*) FROM pg_listening_channels()),
			(SELECT count(*) FROM pg_cursors WHERE is_holdable), current_setting('transaction_read_only'), current_setting('TimeZone') = reset_val, current_user)
			FROM pg_settings WHERE name = 'TimeZone'`).Scan(&s)
		found <- fmt.Sprint(s, " ", err)
		return err
	})
	n := b.start(b.cfg, r)
	for i, leftover := range leftovers {
		for _, how := range []string{"return", "fail", "panic"} {
			e, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), dirty{i, how})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				s, _, err := n.Operator().Jobs().Get(t.Context(), e.ID)
				require.NoError(t, err)
				return s.State == "done" || s.State == "cancelled" || s.State == "dead"
			}, patience, patience/10000, "%s, %s", leftover, how)
			_, err = n.Client().Enqueue(tenancy.For(t.Context(), "t2"), look{})
			require.NoError(t, err)
			require.Equal(t, "t2, pg_temp t2 10s  t2 t 0 0 0 off t "+rolePrefix+"t2 <nil>", <-found, broken+"after %s, %s", leftover, how)
		}
	}
}
