package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// TenantsWithJobs lists tenants that have unfinished jobs, dead letters among them.
// Of each state at most max jobs are looked at.
func TenantsWithJobs(ctx context.Context, db DB, max int) ([]string, error) {
	rows, err := db.Query(ctx, sqlTenantWithJobs, max)
	if err == nil {
		var out []string
		if out, err = pgx.CollectRows(rows, pgx.RowTo[string]); err == nil {
			return out, nil
		}
	}
	return nil, fmt.Errorf("list tenants with jobs: %w", translate(err))
}
