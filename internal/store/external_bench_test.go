package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// BenchmarkExternal has workers acquire and complete jobs, a hundred at a time, of a hundred tenants
// or one, while so many wait.
func BenchmarkExternal(b *testing.B) {
	const batch = 100
	for _, tenants := range []int{1, 100} {
		for _, waiting := range []int{10_000, 200_000} {
			b.Run(fmt.Sprintf("tenants=%d/waiting=%d", tenants, waiting), func(b *testing.B) {
				bed := setup(b)
				bed.db = tuned(b, bed)
				ctx := context.Background()
				var jobs []store.NewJob
				for i := range waiting + b.N*batch {
					jobs = append(jobs, store.NewJob{Tenant: fmt.Sprintf("t%03d", i%tenants), Queue: "default", Kind: "t", Payload: []byte(`{"n": 1}`), External: true})
				}
				require.NoError(b, pgx.BeginFunc(ctx, bed.db, func(tx pgx.Tx) error {
					return store.EnqueueMany(ctx, tx, 1, jobs)
				}))
				_, err := bed.owner.Exec(ctx, "VACUUM ANALYZE tenure.external_job")
				require.NoError(b, err)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						for left := batch; left > 0; {
							got, _, err := store.AcquireExternal(ctx, bed.db, &store.ExternalRequest{Topic: "t", Worker: "w", LockFor: time.Hour, Max: left, Bytes: 1 << 24, Look: left})
							require.NoError(b, err)
							require.NotEmpty(b, got)
							ends := make([]store.ExternalEnd, len(got))
							for i, e := range got {
								ends[i].ExternalLock = lockOf(e)
							}
							done, err := store.FinishExternal(ctx, bed.db, ends, true)
							require.NoError(b, err)
							require.Len(b, done, len(got))
							left -= len(got)
						}
					}
				})
				b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "jobs/s")
			})
		}
	}
}
