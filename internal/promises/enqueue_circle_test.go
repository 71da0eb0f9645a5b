package promises_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/tenancy"
)

// Two calls that add many jobs with the same unique keys, in opposite order at the same time, both succeed.
func TestTheSameKeysAtTheSameTime(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	c := b.node(b.cfg, b.registry(nil)).Client()
	ctx := tenancy.For(t.Context(), "t1")
	for name, add := range map[string]func([]tenure.Entry) error{
		"EnqueueMany": func(e []tenure.Entry) error { _, err := c.EnqueueMany(ctx, e); return err },
		"EnqueueBatch": func(e []tenure.Entry) error {
			_, err := c.EnqueueBatch(ctx, tenure.Batch{Then: write{0}, Jobs: e})
			return err
		},
		"EnqueueManyTx": func(e []tenure.Entry) error {
			return pgx.BeginFunc(ctx, b.db["p1"], func(tx pgx.Tx) error { _, err := c.EnqueueManyTx(ctx, tx, e); return err })
		},
	} {
		entries := make([]tenure.Entry, 3) // the one in the middle is another transaction's until both calls have begun
		for i := range entries {
			entries[i] = tenure.Entry{Args: write{i}, Options: []tenure.Option{tenure.In(time.Hour), tenure.Unique(name + []string{"a", "held", "z"}[i])}}
		}
		holder, err := b.db["p1"].Begin(t.Context())
		require.NoError(t, err)
		_, err = c.EnqueueManyTx(ctx, holder, entries[1:2])
		require.NoError(t, err)
		ended := make(chan error, 2)
		opposite := slices.Clone(entries)
		slices.Reverse(opposite)
		go func() { ended <- add(entries) }()
		go func() { ended <- add(opposite) }()
		b.eventually(2, "p1", "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		require.NoError(t, holder.Rollback(context.Background()))
		require.NoError(t, <-ended, name)
		require.NoError(t, <-ended, name)
		require.Equal(t, 3, b.count("p1", "SELECT count(*) FROM tenure.unique_job WHERE starts_with(key, $1)", name+"a")+b.count("p1", "SELECT count(*) FROM tenure.unique_job WHERE key = ANY ($1)", []string{name + "held", name + "z"}))
	}
}
