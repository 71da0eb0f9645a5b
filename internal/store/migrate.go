package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

const migrationTable = "tenure.migration"

// LedgerVersion is the version that [Migrate] brings a ledger to: the number of the last
// file in migrations/. This program works on ledgers of that version, and on newer ones
// whose oldest_program is not above it.
func LedgerVersion() int64 {
	files, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil || len(files) == 0 {
		panic("store: no migrations") // embedded
	}
	v, err := goose.NumericComponent(files[len(files)-1])
	if err != nil {
		panic(err)
	}
	return v
}

// Migration is one applied step.
type Migration struct {
	Version int64
	Name    string
	Took    time.Duration
}

// lockPoll and lockPatience time the wait for another process' migration of the same pool.
const (
	lockPoll     = 1 // s
	lockPatience = 300
)

// A migration must not queue for a table's lock: all who come after it, such as whoever
// enqueues a job, would queue behind it for as long as some transaction stays open. So it
// waits for a moment only, undoes what it did, and tries again after a pause that is
// several times as long.
const (
	ddlLockTimeout = 100 * time.Millisecond
	ddlPause       = 500 * time.Millisecond // before the first of these tries; each is longer than the one before
	ddlLongPause   = 4 * time.Second        // at most
	ddlPatience    = 2 * time.Minute
)

// MigrationConfig makes a connection configuration fit for [ReadLedger] and [Migrate].
func MigrationConfig(c *pgx.ConnConfig) {
	c.DefaultQueryExecMode = pgx.QueryExecModeExec // no statement is used twice
	c.StatementCacheCapacity, c.DescriptionCacheCapacity = 0, 0
	c.RuntimeParams["application_name"] = "tenure migrate"
	c.RuntimeParams["lock_timeout"] = fmt.Sprint(ddlLockTimeout.Milliseconds())
	c.RuntimeParams["statement_timeout"] = "0"
}

// Ledger is what a pool's database says of itself and its ledger.
type Ledger struct {
	Identity      Identity
	Version       int64  // 0: there is no ledger
	OldestProgram int64  // the oldest ledger version whose programs may work on it
	Number        int    // 0: none yet
	Name          string // of the pool; "": none yet
}

// UpToDate tells whether [Migrate] would have nothing to do.
func (l Ledger) UpToDate() bool { return l.Version >= LedgerVersion() && l.Number > 0 }

// Usable is why the database cannot be this pool, or this program cannot work on its
// ledger, whatever is added to it; nil: it can be migrated.
func (l Ledger) Usable(pool string) error {
	if err := l.Identity.Usable(pool); err != nil {
		return err
	}
	if err := l.Belongs(pool); err != nil {
		return err
	}
	if LedgerVersion() < l.OldestProgram {
		return newerLedger(pool, l.Version, l.OldestProgram)
	}
	return nil
}

// Belongs refuses a ledger that was numbered as another pool's.
func (l Ledger) Belongs(pool string) error {
	if l.Number == 0 {
		return nil
	}
	return checkName(pool, l.Name)
}

// ReadLedger asks a database for its ledger, in one round trip on a connection that
// [MigrationConfig] made fit.
func ReadLedger(ctx context.Context, conn *pgx.Conn) (l Ledger, err error) {
	var b pgx.Batch
	b.Queue(sqlPoolIdentity)
	b.Queue(sqlSchemaVersion)
	b.Queue(sqlPoolNumber)
	answers := conn.SendBatch(ctx, &b)
	defer answers.Close() // errors are those of the rows
	if l.Identity, err = scanIdentity(answers.QueryRow()); err != nil {
		return l, err
	}
	err = translate(answers.QueryRow().Scan(&l.Version, &l.OldestProgram))
	switch {
	case errors.Is(err, ErrNotMigrated):
		return l, nil
	case err != nil:
		return l, fmt.Errorf("read the ledger's version: %w", err)
	}
	err = answers.QueryRow().Scan(&l.Number, &l.Name)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) { // without a row it has no number yet
		return l, fmt.Errorf("read the pool's number: %w", translate(err))
	}
	return l, nil
}

// Migrate brings a pool's ledger to this program's version, numbers the pool unless it has
// a number or number is 0, gives users who have the ledger what was added to it, and returns
// the steps that it applied. cfg is one that
// [MigrationConfig] made fit; one connection is opened. A newer ledger that this program
// can work on is left alone; one that it cannot work on is refused. Concurrent calls for
// one database wait for one another. Transactions that are in the way are waited for
// without holding up others; an error names the oldest of them after two minutes.
func Migrate(ctx context.Context, cfg *pgx.ConnConfig, pool string, number int) (done []Migration, err error) {
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	db.SetMaxOpenConns(1) // of thousands of databases each costs one connection
	var l Ledger
	err = onConn(ctx, db, func(conn *pgx.Conn) (err error) {
		if l, err = ReadLedger(ctx, conn); err == nil {
			err = l.Usable(pool)
		}
		return err
	})
	if err == nil && l.Version < LedgerVersion() {
		done, err = update(ctx, db)
	}
	if err != nil {
		return done, fmt.Errorf("migrate: %w", err)
	}
	return done, onConn(ctx, db, func(conn *pgx.Conn) error {
		if number > 0 {
			if _, err := NumberPool(ctx, conn, number, pool); err != nil {
				return err
			}
		}
		return Regrant(ctx, conn)
	})
}

// onConn lets fn use the connection of a database/sql handle.
func onConn(ctx context.Context, db *sql.DB, fn func(*pgx.Conn) error) error {
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close() // it goes back to db
	return c.Raw(func(driver any) error { return fn(driver.(*stdlib.Conn).Conn()) })
}

// update applies the steps that a ledger lacks, each in a transaction of its own.
func update(ctx context.Context, db *sql.DB) (done []Migration, err error) {
	p, err := provider(ctx, db)
	if err != nil {
		return nil, err
	}
	until, inTheWay := time.Now().Add(ddlPatience), ""
	for pause := ddlPause; ; pause = min(2*pause, ddlLongPause) {
		results, err := p.Up(ctx)
		var partial *goose.PartialError
		if errors.As(err, &partial) {
			results = partial.Applied
		}
		for _, r := range results {
			done = append(done, Migration{Version: r.Source.Version, Name: r.Source.Path, Took: r.Duration})
		}
		if err != nil && ctx.Err() != nil && inTheWay != "" {
			return done, fmt.Errorf("%s: %w", inTheWay, err)
		}
		if !hasCode(err, codeLockTimeout) {
			return done, err
		}
		inTheWay = blockerOf(ctx, db)
		if time.Now().After(until) {
			return done, fmt.Errorf("%s; end it and run migrate again: %w", inTheWay, err)
		}
		select {
		case <-ctx.Done():
			return done, fmt.Errorf("%s: %w", inTheWay, context.Cause(ctx))
		case <-time.After(pause + rand.N(pause/2)):
		}
	}
}

// blockerOf names the transaction that a migration waits for.
func blockerOf(ctx context.Context, db *sql.DB) string {
	var pid int
	var user, application string
	var seconds float64
	if err := db.QueryRowContext(ctx, sqlMigrationBlocker).Scan(&pid, &user, &application, &seconds); err != nil {
		return "other transactions use the ledger's tables all the time" // it may just have ended
	}
	return fmt.Sprintf("a transaction of user %q and application %q (pid %d) has used the ledger's tables for %v",
		user, application, pid, time.Duration(seconds*float64(time.Second)).Round(time.Second))
}

func provider(ctx context.Context, db *sql.DB) (*goose.Provider, error) {
	// goose keeps its own table in the schema that its first migration would make.
	if _, err := db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS tenure"); err != nil && !hasCode(err, codeUniqueViolation) {
		return nil, fmt.Errorf("create schema tenure: %w", err)
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(lockPoll, lockPatience))
	if err != nil {
		return nil, err
	}
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, err
	}
	versions, err := database.NewStore(database.DialectPostgres, migrationTable)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider("", db, files, goose.WithStore(versions), goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true))
}

// idBits is how many low bits of a job id the pool counts with; the pool's number
// stands above them.
const idBits = 47

// maxPoolNumber leaves the sign bit alone.
const maxPoolNumber = 1<<(63-idBits) - 1

// NumberPool gives a migrated database its number and name, and makes its job ids
// begin there. A database that has a number keeps it; the one in force comes back.
func NumberPool(ctx context.Context, db DB, number int, name string) (int, error) {
	if number < 1 || number > maxPoolNumber {
		return 0, fmt.Errorf("pool number %d: 1 to %d are allowed", number, maxPoolNumber)
	}
	if _, err := db.Exec(ctx, sqlPoolName, number, name); err != nil {
		return 0, fmt.Errorf("number the pool: %w", translate(err))
	}
	number, have, err := poolNumber(ctx, db)
	if err != nil {
		return 0, err
	}
	if err := checkName(name, have); err != nil {
		return 0, err
	}
	if _, err := db.Exec(ctx, sqlPoolSeed, int64(number)<<idBits+1); err != nil {
		return 0, fmt.Errorf("number the pool: %w", translate(err))
	}
	return number, nil
}

// PoolOf is the number of the pool that a job id was made in. A moved tenant's
// jobs keep their ids.
func PoolOf(id int64) int { return int(id >> idBits) }
