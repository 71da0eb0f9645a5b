package promises_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// faulty is a job whose handler returns an error that is one itself.
type faulty struct {
	How string `json:"how"`
}

func (faulty) Kind() string { return "faulty" }

// slip is an error that says something only when it is not nil.
type slip struct{ code int }

func (s *slip) Error() string { return fmt.Sprintf("code %d", s.code) }

// faults are the ways in which it is, and what the ledger says of each.
var faults = map[string]struct {
	end  func() error
	says string
}{
	"nil":       {func() error { var s *slip; return s }, "a nil *promises_test.slip was returned as an error"},
	"panic":     {func() error { var s *slip; panic(s) }, "panic: a value of type *promises_test.slip"},
	"long":      {func() error { return errors.New(strings.Repeat("long ", 1<<20)) }, "long long"},
	"not UTF-8": {func() error { return errors.New("a\x00\xffb") }, `a\0` + "\ufffdb"},
}

// A handler whose error cannot be read harms its job only: the node lives, says in the
// ledger what was wrong, and other tenants' jobs end.
func TestP10HostileErrors(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	r := b.registry(nil)
	job.Handle(r, func(_ context.Context, j *job.Job[faulty]) error { return faults[j.Args.How].end() }, job.Retry("R2/PT1H"))
	n := b.start(b.cfg, r)
	const each = 20
	for range each {
		for how := range faults {
			_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), faulty{how})
			require.NoError(t, err)
		}
		_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t2"), plain{})
		require.NoError(t, err)
	}
	b.eventually(each*len(faults), "p1", "SELECT count(*) FROM tenure.timer_job WHERE tenant_id = 't1' AND attempt = 1")
	b.eventually(each, "p1", "SELECT count(*) FROM tenure.completed_job WHERE tenant_id = 't2'")
	for how, f := range faults {
		require.Equal(t, each, b.count("p1", `SELECT count(*) FROM tenure.job_error e JOIN tenure.timer_job j ON j.id = e.job_id
			WHERE j.payload->>'how' = $1 AND position($2 IN e.error) > 0 AND octet_length(e.error) <= $3`, how, f.says, job.MaxErrorText), how)
	}
}

// spoiled are arguments that panic while they are enqueued.
type spoiled struct{ Where string }

func (s spoiled) Kind() string {
	if s.Where == "Kind" {
		panic("spoiled")
	}
	return "spoiled"
}

func (s spoiled) MarshalJSON() ([]byte, error) {
	if s.Where == "MarshalJSON" {
		panic("spoiled")
	}
	return json.Marshal(s.Where)
}

// Arguments that panic do so in the goroutine of who enqueues them, and leave nothing
// behind: no connection that is taken, no transaction that is open.
func TestEnqueueOfWhatPanics(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	r := b.registry(nil)
	job.Handle(r, func(context.Context, *job.Job[spoiled]) error { return nil })
	n := b.start(b.cfg, r)
	ctx := tenancy.For(t.Context(), "t1")
	_, err := n.Client().Enqueue(ctx, plain{})
	require.NoError(t, err)
	for _, where := range []string{"Kind", "MarshalJSON"} {
		for range 2 * b.cfg.Pools["p1"].MaxConns {
			require.Panics(t, func() { _, _ = n.Client().Enqueue(ctx, spoiled{where}) })
			require.Panics(t, func() { _, _ = n.Client().EnqueueMany(ctx, []tenure.Entry{{Args: plain{}}, {Args: spoiled{where}}}) })
			require.Panics(t, func() {
				_ = n.Client().InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
					_, err := n.Client().EnqueueTx(ctx, tx, spoiled{where})
					return err
				})
			})
		}
	}
	b.eventually(0, "p1", "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'")
	b.finished(n.Client(), 1)
}
