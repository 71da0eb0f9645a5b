package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	blockerPatience = 5 * time.Second // to find out who is in the way
	watchEvery      = 5 * time.Second // it is looked whom a migration waits for
)

// waiting tells whom a migration waits for, every few seconds for as long as it does. Safe for concurrent use.
type waiting struct {
	tell func(whom string) // nil: nobody listens

	mu   sync.Mutex
	seen string    // guarded by mu; by watch, last
	at   time.Time // guarded by mu; when that was
	said time.Time // guarded by mu
}

// say tells whom it waits for, unless something was told just now.
func (w *waiting) say(whom string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tell == nil || time.Since(w.said) < watchEvery-time.Second {
		return
	}
	w.said = time.Now()
	w.tell(whom)
}

// seenLately is whom it was seen to wait for lately; "": for nobody.
func (w *waiting) seenLately() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.at) > 2*watchEvery {
		return ""
	}
	return w.seen
}

// watch looks now and then whom the migration of a database waits for, until stop is called. What waits longer than a
// try of a lock does is an index that is made while jobs run, or a trigger on commands that somebody else has made. Each
// look has a connection of its own, outside of a transaction: such an index would wait for one that has looked.
func (w *waiting) watch(ctx context.Context, cfg *pgx.ConnConfig) (stop func()) {
	cfg = cfg.Copy()
	cfg.RuntimeParams["application_name"] = "tenure migrate watch"
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(watchEvery):
			}
			w.look(ctx, cfg)
		}
	})
	return func() {
		cancel()
		group.Wait()
	}
}

func (w *waiting) look(ctx context.Context, cfg *pgx.ConnConfig) {
	ctx, cancel := context.WithTimeout(ctx, blockerPatience)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return // there is another look
	}
	defer conn.Close(context.WithoutCancel(ctx))
	whom, err := blocker{}.scan(conn.QueryRow(ctx, sqlMigrationWaits))
	if err != nil {
		return // it waits for nobody
	}
	w.mu.Lock()
	w.seen, w.at = whom, time.Now()
	w.mu.Unlock()
	w.say(whom)
}

// blocker is whom a migration waits for.
type blocker struct {
	pid               int
	user, application string
	seconds           *float64 // since its transaction began; nil: that is not shown to everybody
	usesLedger        bool
}

func (b blocker) scan(row pgx.Row) (string, error) {
	err := row.Scan(&b.pid, &b.user, &b.application, &b.seconds, &b.usesLedger)
	return b.String(), err
}

func (b blocker) String() string {
	has := "has been open in this database"
	if b.usesLedger {
		has = "has used the ledger's tables"
	}
	text := fmt.Sprintf("a transaction of user %q and application %q (pid %d) %s", b.user, b.application, b.pid, has)
	if b.seconds != nil {
		text += fmt.Sprintf(" for %v", time.Duration(*b.seconds*float64(time.Second)).Round(time.Second))
	}
	return text
}

// blockerOf names the transaction that a migration has tried to get by. A caller who gives up just now
// is the one who wants to know, so the question outlives its context for a moment.
func blockerOf(ctx context.Context, conn *pgx.Conn) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), blockerPatience)
	defer cancel()
	whom, err := blocker{}.scan(conn.QueryRow(ctx, sqlMigrationBlocker))
	if err != nil {
		return "other transactions use the ledger's tables all the time" // it may just have ended
	}
	return whom
}

// TableHolder is who has locked a table of the ledger.
type TableHolder struct {
	PID     int // 0: it is a prepared transaction
	Waiting int // sessions that wait for it

	user, application, table string
	seconds                  float64 // since its transaction began; 0: that is not shown to this user
}

func (h TableHolder) String() string {
	text := fmt.Sprintf("user %q with application %q (pid %d) has held %s", h.user, h.application, h.PID, h.table)
	if h.PID == 0 {
		text = "a prepared transaction has held " + h.table
	}
	if h.seconds > 0 {
		text += fmt.Sprintf(" for %v", time.Duration(h.seconds*float64(time.Second)).Round(time.Second))
	}
	return text
}

// End is the statement that takes the lock from its holder.
func (h TableHolder) End() string {
	if h.PID == 0 {
		return "SELECT gid, prepared, owner FROM pg_prepared_xacts, and ROLLBACK PREPARED or COMMIT PREPARED"
	}
	return fmt.Sprintf("SELECT pg_terminate_backend(%d)", h.PID)
}

// FindTableHolder looks for who has locked a table of the ledger, any of them if it is "", so that neither jobs are claimed
// nor ended. ok: somebody has.
func FindTableHolder(ctx context.Context, db DB, table string) (h TableHolder, ok bool, err error) {
	err = db.QueryRow(ctx, sqlTableHolder, pgx.QueryExecModeExec, table).Scan(&h.PID, &h.user, &h.application, &h.seconds, &h.table, &h.Waiting)
	if errors.Is(err, pgx.ErrNoRows) {
		return h, false, nil
	}
	return h, err == nil, explain(err, "ask who has locked the ledger's tables")
}

// holderOf names who holds a table of the ledger that others wait for.
func holderOf(ctx context.Context, db DB, table string) string {
	h, ok, err := FindTableHolder(ctx, db, table)
	if err != nil || !ok {
		return "others have held " + table + " one after the other" // it may just have ended
	}
	return h.String()
}
