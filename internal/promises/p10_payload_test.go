package promises_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// blob is a job with much in its arguments.
type blob struct {
	Data string `json:"data"`
}

func (blob) Kind() string { return "blob" }

// TestP10PayloadsThatUnfold: what a tenant adds by SQL may be stored in little and printed as
// much. Such jobs are not loaded: they are dead letters with a reason, and others, also of the
// same tenant, run.
func TestP10PayloadsThatUnfold(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	var largest atomic.Int64
	r := b.registry(nil)
	job.Handle(r, func(ctx context.Context, j *job.Job[blob]) error {
		rec, _ := job.FromContext(ctx)
		for l := largest.Load(); int64(len(rec.Payload)) > l && !largest.CompareAndSwap(l, int64(len(rec.Payload))); l = largest.Load() {
		}
		return nil
	})
	n := b.start(b.cfg, r)
	b.exec("p1", `INSERT INTO tenure.job (tenant_id, queue, kind, payload)
		SELECT 't1', 'default', 'blob', p FROM generate_series(1, 5), (VALUES
			(('{"data": "x", "n": [' || repeat('1e400,', 43000) || '1]}')::jsonb),
			(jsonb_build_object('data', repeat('y', 16 << 20))),
			(jsonb_build_object('data', repeat('z', 100000)))) AS v (p)`)
	_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t2"), plain{1})
	require.NoError(t, err)
	b.eventually(6, "p1", "SELECT count(*) FROM tenure.completed_job")
	b.eventually(10, "p1", "SELECT count(*) FROM tenure.dead_letter_job WHERE error LIKE 'its arguments and meta come to more than 2097152 bytes%'")
	require.Less(t, largest.Load(), int64(200_000))
	b.eventually(0, "p1", "SELECT count(*) FROM tenure.claim")

	ctx := tenancy.For(t.Context(), "t1")
	_, err = n.Client().Enqueue(ctx, job.RawArgs{Name: "blob", Payload: []byte("[" + strings.Repeat("1e400,", 43000) + "1]")})
	require.ErrorContains(t, err, "with all digits of its numbers")
}

// TestP10LargePayloads: a page holds so many bytes at most, and those whose jobs were left
// out of one come first in the next: nothing is lost, and everybody's turn comes.
func TestP10LargePayloads(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 3)
	var ran atomic.Int64
	r := b.registry(nil)
	job.Handle(r, func(context.Context, *job.Job[blob]) error {
		ran.Add(1)
		return nil
	})
	b.exec("p1", `INSERT INTO tenure.job (tenant_id, queue, kind, payload)
		SELECT 't' || 1 + n % 3, 'default', 'blob', jsonb_build_object('data', repeat('x', 1000000)) FROM generate_series(1, 60) n`)
	b.start(b.cfg, r)
	b.eventually(60, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.EqualValues(t, 60, ran.Load(), "each once")
}

// TestP10PayloadsThatCannotBePrinted: what somebody adds by SQL may print as more than
// Postgres can print, or take seconds each. Such jobs are dead letters, too, and others run,
// also while they are found out.
func TestP10PayloadsThatCannotBePrinted(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	b.exec("p1", `INSERT INTO tenure.job (tenant_id, queue, kind, payload)
		SELECT 't1', 'default', 'plain', p FROM (VALUES
			((SELECT jsonb_agg('1e100000'::numeric) FROM generate_series(1, 11000))),
			((SELECT jsonb_build_object('n', 1))),
			((SELECT jsonb_agg('1e100000'::numeric) FROM generate_series(1, 3000))),
			(jsonb_build_object('data', repeat('y', 32 << 20)))) AS v (p)`)
	n := b.start(b.cfg, b.registry(nil))
	n.holds("p1")
	_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t2"), plain{1})
	require.NoError(t, err)
	b.eventually(2, "p1", "SELECT count(*) FROM tenure.completed_job")
	b.eventually(3, "p1", "SELECT count(*) FROM tenure.dead_letter_job WHERE error LIKE 'its arguments and meta come to more than 2097152 bytes%'")
	b.eventually(0, "p1", "SELECT count(*) FROM tenure.claim")
}
