package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// Deed is what somebody does as an operator.
type Deed struct {
	Who     string
	Action  string         // such as job.cancel
	Tenant  string         // whose it is; "": of all or nobody, or the job's
	Job     job.ID         // 0: it is not done to one job
	Subject string         // the name of what it is done to, if that is no job
	Detail  map[string]any // what is asked for, beside that
}

// AuditRow is a deed that was noted.
type AuditRow struct {
	ID int64
	At time.Time
	Deed
	Chosen bool // in a list of what was done to one job: it was done to those that a filter chose, as it would this one
}

// Note notes a deed, unless it is none.
func Note(ctx context.Context, db DB, d Deed) error {
	if d.Action == "" {
		return nil
	}
	var detail *string
	if len(d.Detail) > 0 {
		text, err := json.Marshal(d.Detail)
		if err != nil {
			return explain(err, "note %s", d.Action)
		}
		detail = nullable(string(text))
	}
	_, err := db.Exec(ctx, sqlAuditAdd, d.Who, d.Action, nullable(d.Tenant), nullable(int64(d.Job)), nullable(d.Subject), detail)
	return explain(err, "note %s", d.Action)
}

// Operated is what operators' statements run on: a *pgxpool.Pool or a *pgxpool.Conn.
type Operated interface {
	DB
	Beginner
}

// Noted is db of which each transaction notes a deed first, so that it is noted if, and only if, it is
// done.
func Noted(db Operated, d Deed) Operated { return &noted{db, d} }

type noted struct {
	Operated
	deed Deed
}

// BeginTx implements [Beginner].
func (n *noted) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	tx, err := n.Operated.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	if err := Note(ctx, tx, n.deed); err != nil {
		_ = tx.Rollback(ctx) // the first error says it all
		return nil, err
	}
	return tx, nil
}

// InNoted does something in a transaction that notes it as a deed.
func InNoted(ctx context.Context, db Operated, d Deed, do func(DB) error) error {
	return pgx.BeginTxFunc(ctx, Noted(db, d), readCommitted, func(tx pgx.Tx) error { return do(tx) })
}

// AuditFilter chooses deeds; empty fields choose all.
type AuditFilter struct {
	Tenant, Who string
	Action      string // or its part before or behind the dot
	Job         job.ID
	Subject     string
	Before      time.Time // with BeforeID: only those further back
	BeforeID    int64
	Limit       int
}

// Audit lists deeds, the last ones first.
func Audit(ctx context.Context, db DB, f AuditFilter) ([]AuditRow, error) {
	return list(ctx, db, "list what operators have done", func(row pgx.CollectableRow) (r AuditRow, err error) {
		var detail []byte
		if err = row.Scan(&r.ID, &r.At, &r.Who, &r.Action, &r.Tenant, &r.Job, &r.Subject, &detail, &r.Chosen); err == nil && detail != nil {
			err = json.Unmarshal(detail, &r.Detail)
		}
		return r, err
	}, sqlAuditList, nullable(f.Tenant), nullable(f.Who), nullable(f.Action), nullable(int64(f.Job)), nullable(f.Before), f.BeforeID, f.Limit, nullable(f.Subject))
}

// TrimAudit forgets what was done longer ago than kept, so many deeds at most, and returns how many.
// Those of the last thirty days stay in any case.
func TrimAudit(ctx context.Context, db DB, kept time.Duration, most int) (n int, err error) {
	err = db.QueryRow(ctx, sqlAuditTrim, kept.Milliseconds(), most).Scan(&n)
	return n, explain(err, "forget what operators did long ago")
}
