package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

// Record is what a pool's database holds after a run: its ledger, its tenants' effects and
// its audit.
type Record struct {
	pool    string
	events  []report.AuditEvent
	Ends    map[job.ID][]Ending
	Effects map[job.ID][]Ending
	Stands  map[job.ID]string // where a job is that has not ended
}

// Ending is a row that says that a run came to its end.
type Ending struct {
	At   time.Time
	turn int32
	What string
	Kind string
}

func (e Ending) isDead() bool { return strings.HasPrefix(e.What, "dead") }

func readRecord(ctx context.Context, b *bed.Bed, pool string) (r Record, err error) {
	r = Record{pool: pool, Stands: map[job.ID]string{}}
	if err := r.read(ctx, b); err != nil {
		return r, fmt.Errorf("check %s: %w", pool, err)
	}
	return r, nil
}

func (r *Record) read(ctx context.Context, b *bed.Bed) error {
	conn, err := b.Connect(ctx, r.pool)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if r.events, err = report.ReadAudit(ctx, r.pool, conn); err != nil {
		return err
	}
	r.Ends, err = endings(ctx, conn, `SELECT id, finished_at, turn, outcome, kind FROM tenure.completed_job
		UNION ALL SELECT id, died_at, turn, 'dead: ' || error, kind FROM tenure.dead_letter_job`)
	if err != nil {
		return err
	}
	schemas, err := conn.Query(ctx, "SELECT schemaname FROM pg_tables WHERE tablename = 'effect'") // of moved tenants in several pools
	if err != nil {
		return err
	}
	effects, err := pgx.CollectRows(schemas, func(row pgx.CollectableRow) (sql string, err error) {
		err = row.Scan(&sql)
		return fmt.Sprintf("SELECT job_id, at, turn, member, '' FROM %s.effect", sql), err
	})
	if err != nil {
		return err
	}
	if r.Effects, err = endings(ctx, conn, strings.Join(effects, " UNION ALL ")); err != nil {
		return err
	}
	standing, err := endings(ctx, conn, `SELECT id, created_at, turn, 'waiting', kind FROM tenure.job
		UNION ALL SELECT id, created_at, turn, 'a timer', kind FROM tenure.timer_job
		UNION ALL SELECT id, created_at, turn, 'suspended', kind FROM tenure.suspended_job`)
	for id, e := range standing {
		r.Stands[id] = e[0].What
	}
	return err
}

func endings(ctx context.Context, conn *pgx.Conn, sql string) (map[job.ID][]Ending, error) {
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	all := map[job.ID][]Ending{}
	var id job.ID
	var e Ending
	_, err = pgx.ForEachRow(rows, []any{&id, &e.At, &e.turn, &e.What, &e.Kind}, func() error {
		all[id] = append(all[id], e)
		return nil
	})
	return all, err
}
