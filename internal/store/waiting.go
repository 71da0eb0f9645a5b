package store

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// WaitingJobs is what waits of a kind, or of a tenant.
type WaitingJobs struct {
	Jobs   int
	Oldest time.Duration // for how long the one has waited that has longest, of those that were looked at
}

// Waiting jobs are counted exactly while their table is small. Of a large one a sample of pages is
// read, unless it shows so few that the whole may be read in no time.
const (
	samplePages = 500     // 4 MB, with some ten thousand jobs
	sampleLeast = 1_000   // jobs that a sample has to show
	sampleMost  = 100_000 // jobs that are looked at
)

// CountWaiting counts the jobs that could start and that no node has, and those that workers outside the cluster could
// acquire, by kind and by tenant. It takes some tens of milliseconds, however many there are: beyond some ten thousand it
// is an estimate.
func CountWaiting(ctx context.Context, db DB) (byKind, byTenant map[string]WaitingJobs, err error) {
	byKind, byTenant = map[string]WaitingJobs{}, map[string]WaitingJobs{}
	for _, external := range []bool{false, true} {
		kinds, tenants, err := sampleWaiting(ctx, db, external)
		if err != nil {
			return nil, nil, err
		}
		addWaiting(byKind, kinds)
		addWaiting(byTenant, tenants)
	}
	return byKind, byTenant, nil
}

func addWaiting(to, more map[string]WaitingJobs) {
	for name, w := range more {
		to[name] = WaitingJobs{Jobs: to[name].Jobs + w.Jobs, Oldest: max(to[name].Oldest, w.Oldest)}
	}
}

// sampleWaiting is [CountWaiting] for one of the two tables.
func sampleWaiting(ctx context.Context, db DB, external bool) (byKind, byTenant map[string]WaitingJobs, err error) {
	var pages int64
	if err := db.QueryRow(ctx, sqlWaitingPages, external).Scan(&pages); err != nil {
		return nil, nil, explain(err, "measure the waiting jobs")
	}
	percent := 100.0
	if pages > samplePages {
		percent = 100 * samplePages / float64(pages)
	}
	byKind, byTenant, err = countWaiting(ctx, db, external, percent)
	if err != nil || percent == 100 {
		return byKind, byTenant, err
	}
	seen := 0
	for kind, w := range byKind {
		seen += w.Jobs
		byKind[kind] = w.scaled(percent)
	}
	for tenant, w := range byTenant {
		byTenant[tenant] = w.scaled(percent)
	}
	if seen < sampleLeast {
		return countWaiting(ctx, db, external, 100)
	}
	return byKind, byTenant, nil
}

// Oldest is a job that waits.
type Oldest struct {
	Queue, Kind string
	Waited      time.Duration // since it could have started
}

// Retrying is how many jobs of a kind have failed and are tried again, and when the next one is.
type Retrying struct {
	Kind string
	Jobs int
	Next time.Time
}

// ListRetrying lists the kinds of which so many jobs are tried again, of the timers that are due first.
func ListRetrying(ctx context.Context, db DB, least int) ([]Retrying, error) {
	return list(ctx, db, "count jobs that are tried again", pgx.RowToStructByPos[Retrying], sqlRetryingList, least)
}

// OldestWaiting is the job that has waited longest of those that no node has, but for those of some kinds and tenants; none: zero.
func OldestWaiting(ctx context.Context, db DB, exceptKinds, exceptTenants []string) (o Oldest, err error) {
	var seconds float64
	err = db.QueryRow(ctx, sqlWaitingOldest, append([]string{}, exceptKinds...), append([]string{}, exceptTenants...)).Scan(&o.Queue, &o.Kind, &seconds)
	if errors.Is(err, pgx.ErrNoRows) {
		return Oldest{}, nil
	}
	o.Waited = time.Duration(seconds * float64(time.Second))
	return o, explain(err, "look for the oldest job that waits")
}

// scaled is how many there are if so many were in a sample.
func (w WaitingJobs) scaled(percent float64) WaitingJobs {
	w.Jobs = int(math.Round(float64(w.Jobs) * 100 / percent))
	return w
}

func countWaiting(ctx context.Context, db DB, external bool, percent float64) (byKind, byTenant map[string]WaitingJobs, err error) {
	byKind, byTenant = map[string]WaitingJobs{}, map[string]WaitingJobs{}
	rows, _ := db.Query(ctx, sqlWaitingCount, percent, sampleMost, external) // its error is the rows', too
	var kind, tenant *string
	var w WaitingJobs
	var seconds float64
	_, err = pgx.ForEachRow(rows, []any{&kind, &tenant, &w.Jobs, &seconds}, func() error {
		w.Oldest = time.Duration(max(seconds, 0) * float64(time.Second))
		if kind != nil {
			byKind[*kind] = w
		} else {
			byTenant[deref(tenant)] = w
		}
		return nil
	})
	return byKind, byTenant, explain(err, "count the waiting jobs")
}
