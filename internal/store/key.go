package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// Key is an exclusive key: of a tenant's jobs with one name, one runs at a time.
type Key struct{ Tenant, Name string }

// HeldKey is a job in flight that has an exclusive key.
type HeldKey struct {
	ID           job.ID
	Turn         int32
	Tenant, Name string
}

// KeyHead is the waiting job of an exclusive key whose turn it is.
type KeyHead struct {
	Lane     Lane
	Position int64
	Kind     string
	Again    bool // it was tried before, so that others of the key may stand before it
	Retrying bool // it has to wait, as another one of the key waits for its next attempt
	Followed bool // the key has more waiting jobs
}

// KeyHeads finds whose turn it is under each of some keys, without a lock: of jobs that were tried
// before, and of others from a position on, one for each key. Keys without such a job are left out.
func KeyHeads(ctx context.Context, db DB, keys []Key, from []int64) (map[Key]KeyHead, error) {
	tenants, names := splitKeys(keys)
	out := make(map[Key]KeyHead, len(keys))
	rows, _ := db.Query(ctx, sqlKeyHeads, tenants, names, from) // its error is the rows', too
	var n int
	var h KeyHead
	_, err := pgx.ForEachRow(rows, []any{&n, &h.Lane.Queue, &h.Lane.Priority, &h.Position, &h.Kind, &h.Again, &h.Retrying, &h.Followed}, func() error {
		h.Lane.Tenant = tenants[n-1]
		out[keys[n-1]] = h
		return nil
	})
	return out, explain(err, "find the next jobs of exclusive keys")
}

// RunsOver finds which of some runs, each a job and the turn that it was claimed at, have ended: by
// their index. A claim lists its jobs until the last of them has.
func RunsOver(ctx context.Context, db DB, ids []job.ID, turns []int32) (over []int, err error) {
	return list(ctx, db, "find runs that have ended", pgx.RowTo[int], sqlClaimOver, ids, turns)
}

// splitKeys are keys as two lists, never nil.
func splitKeys(keys []Key) (tenants, names []string) {
	tenants, names = make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		tenants[i], names[i] = k.Tenant, k.Name
	}
	return tenants, names
}
