package promises_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// A job's own timeout goes before its kind's, whichever way the job was added, and its error says so.
func TestAJobsOwnTimeout(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	r := job.NewRegistry()
	job.Handle(r, func(ctx context.Context, _ *job.Job[plain]) error {
		<-ctx.Done()
		return ctx.Err()
	}, job.Timeout(time.Hour))
	c := b.node(b.cfg, r).Client()
	ctx := tenancy.For(t.Context(), "t1")
	brief := []tenure.Option{tenure.Timeout(20 * time.Millisecond), tenure.MaxAttempts(1)}
	_, err := c.Enqueue(ctx, plain{}, brief...)
	require.NoError(t, err)
	_, err = c.Enqueue(ctx, plain{}, append(brief, tenure.In(time.Millisecond))...)
	require.NoError(t, err)
	_, err = c.EnqueueMany(ctx, []tenure.Entry{{Args: plain{}, Options: brief}, {Args: plain{}, Options: append(brief, tenure.In(time.Millisecond))}})
	require.NoError(t, err)
	require.NoError(t, c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := c.EnqueueTx(ctx, tx, plain{}, brief...)
		return err
	}))
	b.exec("p1", "SELECT tenure.enqueue('t1', 'plain', '{}', timeout => '20 ms', max_attempts => 1)")
	require.Eventually(t, func() bool { return b.count("p1", "SELECT count(*) FROM tenure.dead_letter_job") == 6 }, patience, 10*time.Millisecond)
	dead, err := c.Operator().Jobs().List(t.Context(), operate.JobFilter{State: "dead"})
	require.NoError(t, err)
	for _, j := range dead {
		require.Equal(t, 20*time.Millisecond, j.Timeout)
		require.Contains(t, j.Error, "the job ran into its timeout of 20ms, its own")
	}
}

// The key of a job is taken for as long as it says; tags come to the handler, and lead to the job.
func TestPeriodsAndTags(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	ran := make(chan []string, 10)
	r := job.NewRegistry()
	job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
		ran <- j.Tags()
		return nil
	})
	c := b.node(b.cfg, r).Client()
	ctx := tenancy.For(t.Context(), "t1")
	add := func(n int, opts ...tenure.Option) tenure.Enqueued {
		t.Helper()
		added, err := c.Enqueue(ctx, plain{n}, opts...)
		require.NoError(t, err)
		return added
	}
	options := func() []tenure.Option {
		return []tenure.Option{tenure.Meta(map[string]any{"by": "me"}), tenure.Tags("eu", "import"), tenure.Tags("eu"), tenure.Correlation("order-1")}
	}
	first := add(1, append(options(), tenure.UniqueArgs(time.Hour))...)
	select {
	case tags := <-ran:
		require.Equal(t, []string{"eu", "import"}, tags)
	case <-time.After(patience):
		require.Fail(t, "the job did not run")
	}
	for _, f := range []operate.JobFilter{{Tags: []string{"import"}}, {CorrelationID: "order-1"}} {
		f.State = "done"
		require.Eventually(t, func() bool {
			found, err := c.Operator().Jobs().List(t.Context(), f)
			require.NoError(t, err)
			return len(found) == 1 && found[0].ID == first.ID
		}, patience, 10*time.Millisecond)
	}
	require.Equal(t, tenure.Enqueued{ID: first.ID, Duplicate: true}, add(1, tenure.UniqueArgs(0)), "its arguments are taken for an hour")
	require.False(t, add(2, tenure.UniqueArgs(0)).Duplicate, "others are not")
	require.False(t, add(5, tenure.Meta(nil), tenure.Tags("bare")).Duplicate)
	found, err := c.Operator().Jobs().List(t.Context(), operate.JobFilter{Tags: []string{"bare"}})
	require.NoError(t, err)
	require.Len(t, found, 1)
	other := add(3, tenure.UniqueFor("k", time.Hour))
	require.Equal(t, tenure.Enqueued{ID: other.ID, Duplicate: true}, add(4, tenure.Unique("k")))

	for says, option := range map[string]tenure.Option{
		"Timeout(0s)":                   tenure.Timeout(0),
		"Timeout(1000h0m0s)":            tenure.Timeout(1000 * time.Hour),
		"UniqueFor: a period of 0s":     tenure.UniqueFor("k", 0),
		"UniqueArgs: a period of 1ms":   tenure.UniqueArgs(time.Millisecond),
		"UniqueFor: a period of 87841h": tenure.UniqueFor("k", 10*366*24*time.Hour+time.Hour),
		"Tags: 17 tags: 16 are allowed": tenure.Tags(strings.Split("a b c d e f g h i j k l m n o p q", " ")...),
		`tag "" has 0 bytes`:            tenure.Tags(""),
		"has 65 bytes":                  tenure.Tags(strings.Repeat("x", 65)),
		"NUL":                           tenure.Tags("a\x00"),
		"those that begin with tenure:": tenure.Meta(map[string]any{"tenure:tags": 1}),
	} {
		_, err := c.Enqueue(ctx, plain{}, option)
		require.ErrorContains(t, err, says)
		require.True(t, tenure.Refused(err), says)
	}
	_, err = c.Operator().Jobs().List(t.Context(), operate.JobFilter{Tags: []string{""}})
	require.ErrorContains(t, err, `tag "" has 0 bytes`)
}
