package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Move is one command's work on moving a tenant. Each of its steps can be repeated, by
// the same command or by one that takes over. See docs/adr/0012-moving-a-tenant.md.
type Move struct {
	Tenant string
	Mover  uuid.UUID
}

// ErrMoverReplaced: another command has taken the move over.
var ErrMoverReplaced = errors.New("another command goes on with this move")

// Begin keeps the tenant's jobs from being claimed in the pool it leaves, and says
// whether it was frozen. TenantBusyError: it goes elsewhere, or is not there.
func (m Move) Begin(ctx context.Context, from Beginner, to string) (frozen bool, err error) {
	err = bothLockedOut(ctx, from, fmt.Sprintf("begin to move tenant %q", m.Tenant), func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, sqlMoveBegin, m.Tenant, to, m.Mover).Scan(&frozen)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		row, err := ReadTenant(ctx, tx, m.Tenant)
		if err != nil {
			return err
		}
		return &TenantBusyError{row}
	})
	return frozen, err
}

// Abandon gives up a move that nothing was moved by yet.
func (m Move) Abandon(ctx context.Context, from DB) error {
	return explain(changeTenant(ctx, from, m.Tenant, sqlMoveAbandon, m.Tenant), "give up moving tenant %q", m.Tenant)
}

// InFlight counts the tenant's claimed jobs, and names a node that has one.
func (m Move) InFlight(ctx context.Context, from DB) (n int, node string, err error) {
	err = from.QueryRow(ctx, sqlMoveInFlight, m.Tenant).Scan(&n, &node)
	return n, node, explain(err, "count the running jobs of tenant %q", m.Tenant)
}

// Hold keeps the tenant's transactions from beginning in the pool it leaves, or lets them
// again. Those that have begun before are among the next [OpenTransactions].
func (m Move) Hold(ctx context.Context, from DB, held bool) error {
	return m.step(ctx, from, "hold or release", sqlMoveHold, m.Tenant, m.Mover, held)
}

// Arrive keeps the tenant's jobs from being claimed in the pool they come to. from is
// the pool it lives in until then; "" if it lives there already.
func (m Move) Arrive(ctx context.Context, to Beginner, from string, frozen bool) error {
	return bothLockedOut(ctx, to, fmt.Sprintf("receive tenant %q", m.Tenant), func(tx pgx.Tx) error {
		return changeTenant(ctx, tx, m.Tenant, sqlMoveArrive, m.Tenant, nullable(from), m.Mover, frozen)
	})
}

// Limits gives the arriving tenant what was set for it in the pool it leaves. The holder there hears
// of it before it claims any of its jobs.
func (m Move) Limits(ctx context.Context, from DB, to Beginner) error {
	var limits, buckets string
	var maxRunning, maxWaiting *int32
	var weight int32
	if err := from.QueryRow(ctx, sqlMoveLimits, m.Tenant).Scan(&maxRunning, &weight, &maxWaiting, &limits, &buckets); err != nil {
		return explain(err, "read the limits of tenant %q", m.Tenant)
	}
	return changeLimits(ctx, to, fmt.Sprintf("limit tenant %q", m.Tenant), func(tx pgx.Tx) error {
		return m.step(ctx, tx, "limit", sqlMoveLimitsSet, m.Tenant, m.Mover, maxRunning, weight, maxWaiting, limits, buckets)
	})
}

// Close sends on anyone who enqueues for the tenant. Nothing of it may be in flight.
func (m Move) Close(ctx context.Context, from DB, to string) error {
	return m.step(ctx, from, "close the old pool for", sqlMoveClose, m.Tenant, to, m.Mover)
}

// Take takes a move over in a pool where the tenant is in this state.
func (m Move) Take(ctx context.Context, db DB, state string) error {
	return m.step(ctx, db, "take over the move of", sqlMoveTake, m.Tenant, state, m.Mover)
}

// Open lets the tenant's jobs run in the pool that it arrived in.
func (m Move) Open(ctx context.Context, to DB) error {
	return m.step(ctx, to, "open the new pool for", sqlMoveOpen, m.Tenant, m.Mover)
}

// step runs a statement that returns no row when the caller is not the mover any more.
func (m Move) step(ctx context.Context, db DB, what, sql string, args ...any) error {
	tag, err := db.Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrMoverReplaced
	}
	return explain(err, "%s tenant %q", what, m.Tenant)
}

// Places are the tables that a tenant's unfinished jobs stand in, in the order in which
// Jobs moves them.
var Places = []string{placeJob, "timer_job", "external_job", "suspended_job", "dead_letter_job"}

const placeJob = "job"

// Bounds of a batch.
const (
	moveBatch = 1000
	moveBytes = 8 << 20
)

// Ends are the two databases of a move.
type Ends struct {
	From, To interface {
		DB
		Beginner
	}
}

// Jobs moves the tenant's schedules, the periods of its unique keys and its unfinished jobs, batch by batch, each durable in
// the new pool before it leaves the old one, and tells moved of each. begin is called before the
// first: the tenant must be arriving, or what was moved might run, and come again.
func (m Move) Jobs(ctx context.Context, e Ends, begin func(context.Context) error, moved func(place string, n int)) error {
	if err := m.schedules(ctx, e, begin, moved); err != nil {
		return err
	}
	if err := movePeriods(ctx, m, e, begin); err != nil {
		return err
	}
	if err := m.moveLinks(ctx, e, begin); err != nil {
		return err
	}
	lanes, err := m.Lanes(ctx, e.From)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		err := m.place(ctx, e, placeJob, begin, moved, func(tx pgx.Tx, after int64) (pgx.Rows, error) {
			return tx.Query(ctx, sqlMoveReadLane, m.Tenant, l.Queue, l.Priority, after, moveBatch)
		})
		if err != nil {
			return err
		}
	}
	for _, place := range Places[1:] {
		err := m.place(ctx, e, place, begin, moved, func(tx pgx.Tx, after int64) (pgx.Rows, error) {
			return tx.Query(ctx, sqlMoveRead, m.Tenant, place, after, moveBatch)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Lanes lists where the tenant's jobs wait.
func (m Move) Lanes(ctx context.Context, db DB) ([]Lane, error) {
	return list(ctx, db, fmt.Sprintf("list the lanes of tenant %q", m.Tenant), func(row pgx.CollectableRow) (Lane, error) {
		l := Lane{Tenant: m.Tenant}
		err := row.Scan(&l.Queue, &l.Priority)
		return l, err
	}, sqlMoveLanes, m.Tenant)
}

// lines are rows on their way, as JSON.
type lines struct {
	ids  []int64
	text []string
}

func (m Move) place(ctx context.Context, e Ends, place string, begin func(context.Context) error, moved func(string, int), read func(tx pgx.Tx, after int64) (pgx.Rows, error)) error {
	after := int64(-1 << 63)
	for {
		n := 0
		err := pgx.BeginTxFunc(ctx, e.From, readCommitted, func(tx pgx.Tx) error {
			rows, err := read(tx, after)
			if err != nil {
				return err
			}
			var batch lines
			if batch, after, err = collect(rows, after); err != nil || len(batch.ids) == 0 {
				return err
			}
			if err := begin(ctx); err != nil {
				return err
			}
			if err := m.arriveBatch(ctx, tx, e.To, place, batch); err != nil {
				return err
			}
			n = len(batch.ids)
			_, err = tx.Exec(ctx, sqlMoveDelete, place, batch.ids)
			return err
		})
		if IsUnreadable(err) {
			err = fmt.Errorf("a job cannot be read: mend the database, or remove the row, which `tenure doctor` names, and call this again: %w", err)
		}
		if err != nil {
			return explain(err, "move jobs of tenant %q from tenure.%s", m.Tenant, place)
		}
		if n == 0 {
			return nil
		}
		moved(place, n)
	}
}

// collect reads a batch of moderate size and the cursor behind it.
func collect(rows pgx.Rows, after int64) (lines, int64, error) {
	defer rows.Close()
	var b lines
	bytes := 0
	for bytes < moveBytes && rows.Next() {
		var id int64
		var line string
		if err := rows.Scan(&after, &id, &line); err != nil {
			return b, after, err
		}
		b.ids = append(b.ids, id)
		b.text = append(b.text, line)
		bytes += len(line)
	}
	rows.Close()
	return b, after, rows.Err()
}

// arriveBatch makes a batch durable in the new pool. source holds the locks on it.
func (m Move) arriveBatch(ctx context.Context, source DB, to Beginner, place string, batch lines) error {
	unwanted, err := list(ctx, source, "read cancel requests", pgx.RowTo[int64], sqlMoveCancels, batch.ids)
	if err != nil {
		return err
	}
	return pgx.BeginTxFunc(ctx, to, readCommitted, func(tx pgx.Tx) error {
		if err := durable(ctx, tx); err != nil {
			return err
		}
		if err := m.step(ctx, tx, "add jobs of", sqlMoveFence, m.Tenant, m.Mover); err != nil {
			return err
		}
		fresh, err := list(ctx, tx, "add jobs", pgx.RowTo[int64], sqlMoveInsert, place, batch.text)
		if err != nil {
			return err
		}
		if err := copyRuns(ctx, source, tx, fresh); err != nil {
			return err
		}
		if err := addCancels(ctx, tx, unwanted); err != nil {
			return err
		}
		var there int
		if err := tx.QueryRow(ctx, sqlMoveCheck, place, batch.text).Scan(&there); err != nil {
			return err
		}
		if there != len(batch.ids) {
			return fmt.Errorf("%d of %d jobs stand in the new pool: the others' ids are taken there by other jobs, as may happen after a fail-over that lost commits", there, len(batch.ids))
		}
		return nil
	})
}

// durable makes a transaction's commit last, whatever the database's default is: what
// it adds is removed elsewhere then.
func durable(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SELECT set_config('synchronous_commit', 'on', true)")
	return err
}

// copyRuns adds what is kept of the runs of jobs that have just arrived.
func copyRuns(ctx context.Context, from, to DB, ids []int64) error {
	err := copyRows(ctx, from, to, sqlMoveErrors, sqlMoveErrorsInsert, ids)
	if err == nil {
		err = copyRows(ctx, from, to, sqlMoveReports, sqlMoveReportsInsert, ids)
	}
	return err
}

// copyRows reads rows of jobs, as JSON, and adds them elsewhere, some megabytes at a time: a
// batch's jobs may have said a gigabyte.
func copyRows(ctx context.Context, from, to DB, read, insert string, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	rows, err := from.Query(ctx, read, ids)
	if err != nil {
		return err
	}
	defer rows.Close()
	for more := true; more; {
		var chunk []string
		for bytes := 0; bytes < moveBytes; {
			if more = rows.Next(); !more {
				break
			}
			var line string
			if err := rows.Scan(&line); err != nil {
				return err
			}
			chunk = append(chunk, line)
			bytes += len(line)
		}
		if len(chunk) == 0 {
			break
		}
		if _, err := to.Exec(ctx, insert, chunk, ids); err != nil {
			return err
		}
	}
	return rows.Err()
}

func addCancels(ctx context.Context, db DB, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := db.Exec(ctx, sqlMoveCancelsInsert, ids)
	return err
}

// LateCancels brings along requests to cancel that were committed in the old pool after their jobs
// had left it.
func (m Move) LateCancels(ctx context.Context, e Ends) error {
	asked, err := list(ctx, e.From, "read late cancel requests", pgx.RowTo[int64], sqlMoveCancelsLate)
	if err != nil || len(asked) == 0 {
		return err
	}
	_, err = e.To.Exec(ctx, sqlMoveCancelsLateInsert, asked, m.Tenant)
	return explain(err, "add late cancel requests of tenant %q", m.Tenant)
}

// Finished moves the tenant's finished jobs, which nobody waits for.
func (m Move) Finished(ctx context.Context, e Ends, moved func(n int)) error {
	err := pgx.BeginTxFunc(ctx, e.From, readCommitted, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "DECLARE finished NO SCROLL CURSOR FOR "+sqlMoveFinished, m.Tenant); err != nil {
			return err
		}
		for {
			n, err := m.finishedBatch(ctx, tx, e)
			if err != nil || n == 0 {
				return err
			}
			moved(n)
		}
	})
	if err == nil {
		_, err = e.To.Exec(ctx, sqlMoveArrivedForget, m.Tenant, m.Mover)
	}
	return explain(err, "move finished jobs of tenant %q", m.Tenant)
}

// Settle removes from another pool the finished jobs that arrived last in this one and
// still stand here: where they came from their removal may have been cut short. others are
// the pools, by name. Nobody can move them on meanwhile.
func (m Move) Settle(ctx context.Context, here Beginner, others map[string]DB) error {
	err := pgx.BeginTxFunc(ctx, here, readCommitted, func(tx pgx.Tx) error {
		var arrived []int64
		err := tx.QueryRow(ctx, sqlMoveArrived, m.Tenant, m.Mover).Scan(&arrived)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return ErrMoverReplaced
		case err != nil || len(arrived) == 0:
			return err
		}
		for name, other := range others {
			if _, err := other.Exec(ctx, sqlMoveArrivedDelete, m.Tenant, arrived); err != nil {
				return fmt.Errorf("pool %s: %w", name, err)
			}
		}
		_, err = tx.Exec(ctx, sqlMoveArrivedForget, m.Tenant, m.Mover)
		return err
	})
	return explain(err, "remove finished jobs of tenant %q where they were moved from", m.Tenant)
}

func (m Move) finishedBatch(ctx context.Context, cursor pgx.Tx, e Ends) (int, error) {
	rows, err := cursor.Query(ctx, fmt.Sprintf("FETCH %d FROM finished", finishedBatch))
	if err != nil {
		return 0, err
	}
	var batch lines
	type spots struct {
		tids []string
		ids  []int64
	}
	where := map[int64]*spots{} // by partition
	var partition, id int64
	var tid, line string
	_, err = pgx.ForEachRow(rows, []any{&partition, &tid, &id, &line}, func() error {
		batch.ids = append(batch.ids, id)
		batch.text = append(batch.text, line)
		if where[partition] == nil {
			where[partition] = &spots{}
		}
		w := where[partition]
		w.tids, w.ids = append(w.tids, tid), append(w.ids, id)
		return nil
	})
	if err != nil || len(batch.ids) == 0 {
		return 0, err
	}
	err = pgx.BeginTxFunc(ctx, e.To, readCommitted, func(tx pgx.Tx) error {
		if err := durable(ctx, tx); err != nil {
			return err
		}
		if err := m.step(ctx, tx, "add finished jobs of", sqlMoveFinishedInsert, m.Tenant, m.Mover, batch.text, batch.ids); err != nil {
			return err
		}
		return copyRuns(ctx, cursor, tx, batch.ids)
	})
	if err != nil {
		return 0, err
	}
	for partition, w := range where {
		if _, err := e.From.Exec(ctx, sqlMoveFinishedDelete, partition, w.tids, w.ids); err != nil {
			return 0, err
		}
	}
	return len(batch.ids), nil
}

// finishedBatch bounds a batch of finished jobs: few, as their number is all that
// bounds its size.
const finishedBatch = 200

// IsPrepared tells whether one of the [OpenTransactions] is prepared for two-phase commit.
func IsPrepared(tx string) bool { return strings.HasPrefix(tx, "prepared ") }

// DescribeTransaction says whose one of the [OpenTransactions] is, as far as the caller
// may see that, in words that an operator can look it up by.
func DescribeTransaction(ctx context.Context, db DB, tx string) string {
	_, pid, ok := strings.Cut(tx, " ")
	if !ok || IsPrepared(tx) {
		return tx
	}
	var user, application, state string
	var seconds float64
	id, err := strconv.Atoi(pid)
	if err == nil {
		err = db.QueryRow(ctx, sqlTransactionSession, id).Scan(&user, &application, &state, &seconds)
	}
	if err != nil { // it has ended, perhaps
		return "process " + pid
	}
	out := "process " + pid
	for _, s := range []string{user, application, state} {
		if s != "" {
			out += ", " + s
		}
	}
	if seconds > 0 {
		out += fmt.Sprintf(", open for %.1f s", seconds)
	}
	return out
}

// OpenTransactions lists the transactions that are open in a database. Once none is
// left of a list that was read after a pool was closed for a tenant, nobody can commit a
// job for it there any more: anyone who began later sees that it is closed.
//
// That a snapshot's xmin has passed would prove less: a transaction may have read that
// the pool is open before it has an id.
func OpenTransactions(ctx context.Context, db DB) ([]string, error) {
	return list(ctx, db, "list open transactions", pgx.RowTo[string], sqlTransactionList)
}
