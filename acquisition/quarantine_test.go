package acquisition

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

// Jobs that lost a node do not wait for one that has lost two and runs for long: it has its last loss taken
// back. One that has failed five times keeps it; they do not wait for that one either.
func TestLostJobsDoNotWaitForOneThatRunsLong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ failures, losses int64 }{"it is spared": {2, 1}, "it was spared too often": {5, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := make(chan struct{})
			ran := make(chan job.ID, 20)
			b := setup(t, nil, func(r *job.Registry) {
				tells(ran)(r)
				r.Add(job.Spec{Kind: "long", Handle: func(ctx context.Context, _ *job.Record) error {
					select {
					case <-end:
					case <-ctx.Done():
					}
					return ctx.Err()
				}})
			}).start()
			long := b.enqueue("long")
			b.exec("UPDATE tenure.job SET losses = 2")
			b.exec("INSERT INTO tenure.job_error (job_id, attempt, node, error) SELECT $1, 1, 'n', 'lost' FROM generate_series(1, $2)", long, c.failures)
			for range cap(ran) {
				b.enqueue("tell")
			}
			b.exec("UPDATE tenure.job SET losses = 1 WHERE kind = 'tell'")
			tm, _ := b.term(t.Context())
			stop, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- tm.lead(stop) }()
			for range cap(ran) {
				within(t, ran)
			}
			require.Equal(t, c.losses, b.count("SELECT losses FROM tenure.job WHERE id = $1", long))
			close(end)
			b.eventually(0, "SELECT count(*) FROM tenure.job")
			require.Equal(t, c.losses, b.count("SELECT losses FROM tenure.completed_job WHERE id = $1", long))
			cancel()
			within(t, ended)
		})
	}
}
