package store

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/tenurehq/tenure/internal/backoff"
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

// holdPatience bounds the wait for another process' migration of the same pool, and holdTry one
// try of it: autovacuum gives way to whoever has waited for a second.
const (
	holdPatience = 5 * time.Minute
	holdTry      = 2 * time.Second
)

// A migration must not queue for a table's lock: all who come after it, such as anyone who
// enqueues a job, would queue behind it for as long as some transaction stays open. So it
// waits for a moment only, undoes what it did, and tries again after a pause that is
// several times as long.
const (
	ddlLockTimeout = 100 * time.Millisecond
	ddlPatience    = 2 * time.Minute
)

// ddlRetry spaces out these tries.
var ddlRetry = backoff.Policy{First: 500 * time.Millisecond, Longest: 4 * time.Second}

// MigrationConfig makes a connection configuration fit for [ReadLedger] and [Migrate].
func MigrationConfig(c *pgx.ConnConfig) {
	FixLedgerSettings(c)
	c.DefaultQueryExecMode = pgx.QueryExecModeExec // no statement is used twice
	c.StatementCacheCapacity, c.DescriptionCacheCapacity = 0, 0
	c.RuntimeParams["application_name"] = "tenure migrate"
	c.RuntimeParams["lock_timeout"] = fmt.Sprint(ddlLockTimeout.Milliseconds())
}

// Ledger is what a pool's database says of itself and its ledger.
type Ledger struct {
	Identity      Identity
	Version       int64  // 0: there is no ledger
	OldestProgram int64  // the oldest ledger version whose programs may work on it
	Number        int    // 0: none yet
	Name          string // of the pool; "": none yet
	Lacking       bool   // users named to work on it were not given all of this program's version yet
	Unindexed     bool   // finished jobs of some days have not all of this program's indexes yet
	Holders       []Holder
	Server        ServerState
}

// UpToDate tells whether [Migrate] would have nothing to do.
func (l Ledger) UpToDate() bool {
	return l.Version >= LedgerVersion() && l.Number > 0 && !l.Lacking && !l.Unindexed
}

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
	if l.Number == 0 { // what may have to be said of its server is said where its number is
		return nil
	}
	return l.Server.Usable(pool)
}

// Belongs refuses a ledger that was numbered as another pool's.
func (l Ledger) Belongs(pool string) error {
	if l.Number == 0 {
		return nil
	}
	return checkName(pool, l.Name)
}

// ReadLedger asks a database for its ledger, and whose rights to it are behind, on a
// connection that [MigrationConfig] made fit.
func ReadLedger(ctx context.Context, conn *pgx.Conn) (l Ledger, err error) {
	l, err = readLedger(ctx, conn)
	if hasCode(err, codeNoPrivilege) {
		return l, notSchemasOwner(conn.Config().User, err)
	}
	if err != nil || l.Version < LedgerVersion() {
		return l, err
	}
	users, err := behind(ctx, conn)
	if err != nil {
		return l, err
	}
	l.Lacking = len(users) > 0
	if l.Holders, err = Holders(ctx, conn); err != nil {
		return l, err
	}
	missing, err := missingIndexes(ctx, conn)
	if err != nil {
		return l, err
	}
	l.Unindexed = len(missing) > 0
	l.Server, err = ServerIs(ctx, conn)
	return l, err
}

func readLedger(ctx context.Context, conn *pgx.Conn) (l Ledger, err error) {
	var b pgx.Batch
	b.Queue(sqlPoolIdentity)
	b.Queue(sqlSchemaVersion)
	b.Queue(sqlPoolNumber)
	answers := conn.SendBatch(ctx, &b)
	defer answers.Close() // errors are those of the rows
	if l.Identity, err = scanIdentity(answers.QueryRow()); err != nil {
		return l, err
	}
	if l.Version, l.OldestProgram, err = scanVersion(answers.QueryRow()); err != nil || l.Version == 0 {
		return l, err
	}
	l.Number, l.Name, err = scanNumber(answers.QueryRow())
	return l, err
}

// Migrated is what [Migrate] has done.
type Migrated struct {
	Steps   []Migration
	Grants  []string // statements that gave users named to work on the ledger what was added to it
	Holders []Holder
}

// Migrate brings a pool's ledger to this program's version, numbers the pool unless it has
// a number or number is 0, and gives users named to work on it what was added to it. It
// returns what it did, also before an error. cfg is one that [MigrationConfig] made fit; one connection is opened, and
// while steps are applied another one, which keeps others from that. A newer ledger that this program
// can work on is left alone; one that it cannot work on is refused. Concurrent calls for
// one database wait for one another. Transactions that are in the way are waited for
// without holding up others; waits, unless nil, is told every few seconds whom it waits for, and an error names them
// after two minutes.
func Migrate(ctx context.Context, cfg *pgx.ConnConfig, pool string, number int, waits func(whom string)) (done Migrated, err error) {
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	db.SetMaxOpenConns(1) // of thousands of databases each costs one connection
	var l Ledger
	err = onConn(ctx, db, func(conn *pgx.Conn) (err error) {
		if _, err = RequireSession(ctx, conn, pool); err != nil {
			return err
		}
		if l, err = ReadLedger(ctx, conn); err == nil {
			err = l.Usable(pool)
		}
		return err
	})
	if BehindPooler(err) {
		err = NoSession(pool)
	}
	if err == nil && (l.Version < LedgerVersion() || l.Unindexed) {
		done.Steps, err = update(ctx, db, cfg, pool, &waiting{tell: waits})
	}
	if err != nil {
		return done, fmt.Errorf("migrate: %w", err)
	}
	err = onConn(ctx, db, func(conn *pgx.Conn) (err error) {
		if number > 0 {
			if _, err := NumberPool(ctx, conn, number, pool); err != nil {
				return err
			}
		}
		if l.Version == 0 {
			// While a day's partition is made, jobs that finish are refused for a moment: those of
			// a new pool's first minute need not be. What fails here, a holder tries again.
			_, _ = KeepDays(ctx, conn, 24*time.Hour)
		}
		if done.Grants, err = Regrant(ctx, conn); err != nil {
			return err
		}
		if done.Holders, err = Holders(ctx, conn); err != nil || number == 0 && l.Number == 0 {
			return err
		}
		server, err := ServerIs(ctx, conn)
		if err == nil {
			err = server.Usable(pool)
		}
		return err
	})
	return done, err
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

// update applies the steps that a ledger lacks, each in a transaction of its own unless it says otherwise,
// and makes the indexes that days of finished jobs lack.
func update(ctx context.Context, db *sql.DB, cfg *pgx.ConnConfig, pool string, w *waiting) (done []Migration, err error) {
	p, err := provider(ctx, db, cfg, pool)
	if err != nil {
		return nil, err
	}
	release, err := holdLedger(ctx, cfg, w)
	if err != nil {
		return nil, err
	}
	defer release()
	defer w.watch(ctx, cfg)()
	until, inTheWay := time.Now().Add(ddlPatience), ""
	pause := backoff.Backoff{Policy: ddlRetry}
	for {
		results, err := p.Up(ctx)
		var partial *goose.PartialError
		if errors.As(err, &partial) {
			results = partial.Applied
		}
		for _, r := range results {
			done = append(done, Migration{Version: r.Source.Version, Name: r.Source.Path, Took: r.Duration})
		}
		if err == nil {
			err = buildIndexes(ctx, db)
		}
		if err != nil && ctx.Err() != nil && inTheWay != "" {
			return done, fmt.Errorf("%s: %w", inTheWay, err)
		}
		if hasCode(err, codeDependents) || hasCode(err, codeUnsupported) {
			return done, nameDependents(ctx, db, err)
		}
		if !hasCode(err, codeLockTimeout) {
			return done, err
		}
		inTheWay = cmp.Or(w.seenLately(), blockerOf(ctx, db))
		w.say(inTheWay)
		if time.Now().After(until) {
			return done, fmt.Errorf("%s; end it and run migrate again: %w", inTheWay, err)
		}
		select {
		case <-ctx.Done():
			return done, fmt.Errorf("%s: %w", inTheWay, context.Cause(ctx))
		case <-time.After(pause.Next()):
		}
	}
}

// nameDependents adds to an error what of others depends on what a step was to change. The steps before it are done.
func nameDependents(ctx context.Context, db *sql.DB, err error) error {
	var (
		found []string
		n     int
	)
	if asked := onConn(ctx, db, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sqlMigrationDependents).Scan(&found, &n)
	}); asked != nil || n == 0 {
		return err
	}
	more := ""
	if n > len(found) {
		more = fmt.Sprintf(" (and %d more)", n-len(found))
	}
	return fmt.Errorf("others have made of the ledger's objects what keeps these from being changed: %s%s; drop what is in the way, and run migrate again, which goes on with this step: %w", strings.Join(found, "; "), more, err)
}

// holdLedger keeps other processes from migrating the pool until release is called or this one ends. The lock
// is a transaction's, and steps are transactions or none at all, so it has a connection of its own. An
// index that is made meanwhile does not wait for it: it has no snapshot between its statements.
func holdLedger(ctx context.Context, cfg *pgx.ConnConfig, w *waiting) (release func(), err error) {
	cfg = cfg.Copy()
	cfg.RuntimeParams["application_name"] = "tenure migrate lock"
	cfg.RuntimeParams["lock_timeout"] = fmt.Sprint(holdTry.Milliseconds())
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	release = func() { _ = conn.Close(context.WithoutCancel(ctx)) } // with it goes the lock
	for began := time.Now(); err == nil; {
		if _, err = conn.Exec(ctx, "BEGIN"); err != nil {
			break
		}
		if _, err = conn.Exec(ctx, sqlMigrationHold); err == nil {
			return release, nil
		}
		if _, rollback := conn.Exec(ctx, "ROLLBACK"); rollback != nil || !hasCode(err, codeLockTimeout) {
			break
		}
		holder := holderOf(ctx, conn, migrationTable)
		w.say(holder)
		if time.Since(began) > holdPatience {
			err = fmt.Errorf("%s; wait for it or end it, and run migrate again: %w", holder, err)
		} else {
			err = nil
		}
	}
	release()
	return nil, fmt.Errorf("keep others from migrating: %w", err)
}

// missingIndexes returns the statements that make the indexes which days of finished jobs lack.
func missingIndexes(ctx context.Context, db DB) ([]string, error) {
	return list(ctx, db, "look for indexes", pgx.RowTo[string], sqlIndexMissing)
}

// buildIndexes makes the indexes that days of finished jobs lack, each without keeping jobs from finishing,
// and so in no transaction. The caller holds the ledger.
func buildIndexes(ctx context.Context, db *sql.DB) error {
	return onConn(ctx, db, func(conn *pgx.Conn) error {
		missing, err := missingIndexes(ctx, conn)
		for _, sql := range missing {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return err
	})
}

// provider applies migrations, once there are the schema and the table that it notes them in. Whoever makes
// these at the same time wins, here and in goose, which tries again for three seconds.
func provider(ctx context.Context, db *sql.DB, cfg *pgx.ConnConfig, pool string) (*goose.Provider, error) {
	// The schema may be there for a user who may make none: even with IF NOT EXISTS that is asked first.
	_, err := db.ExecContext(ctx, "DO $$ BEGIN IF to_regnamespace('tenure') IS NULL THEN CREATE SCHEMA IF NOT EXISTS tenure; END IF; END $$")
	switch {
	case hasCode(err, codeNoPrivilege):
		return nil, (&PoolError{pool, "its user may not make schema tenure",
			fmt.Sprintf("run, as a superuser or the database's owner: GRANT CREATE ON DATABASE %s TO %s; or: CREATE SCHEMA tenure AUTHORIZATION %[2]s;", ident(cfg.Database), ident(cfg.User))}).Because(err)
	case err != nil && !hasCode(err, codeUniqueViolation) && !hasCode(err, codeLockTimeout):
		return nil, fmt.Errorf("create schema tenure: %w", err)
	}
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, err
	}
	versions, err := database.NewStore(database.DialectPostgres, migrationTable)
	if err != nil {
		return nil, err
	}
	var owns bool
	if err := db.QueryRowContext(ctx, "SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'tenure'").Scan(&owns); err != nil {
		return nil, fmt.Errorf("ask who owns schema tenure: %w", err)
	}
	if !owns {
		return nil, notSchemasOwner(cfg.User, nil)
	}
	p, err := goose.NewProvider("", db, files, goose.WithStore(versions), goose.WithDisableGlobalRegistry(true))
	if err == nil {
		_, err = p.GetDBVersion(ctx)
	}
	return p, err
}

// notSchemasOwner says what keeps a user from migrating.
func notSchemasOwner(user string, cause error) error {
	return errors.Join(fmt.Errorf("user %s does not own schema tenure: migrate as its owner, or run, as a superuser: ALTER SCHEMA tenure OWNER TO %s;", user, ident(user)), cause)
}

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }

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
		return 0, explain(err, "number the pool")
	}
	number, have, err := scanNumber(db.QueryRow(ctx, sqlPoolNumber))
	if err != nil {
		return 0, err
	}
	if err := checkName(name, have); err != nil {
		return 0, err
	}
	_, err = db.Exec(ctx, sqlPoolSeed, int64(number)<<idBits+1)
	return number, explain(err, "number the pool")
}

// PoolOf is the number of the pool that a job id was made in. A moved tenant's
// jobs keep their ids.
func PoolOf(id int64) int { return int(id >> idBits) }
