package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/backoff"
)

// Migration is one applied step.
type Migration struct {
	Version int64
	Name    string
	Took    time.Duration
}

// migrationTable says which steps were applied. Programs of before read it.
const migrationTable = "tenure.migration"

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
	Changed       bool   // functions have another text than this program's, whose version the ledger has
	Holders       []Holder
	Server        ServerState
}

// UpToDate tells whether [Migrate] would have nothing to do.
func (l Ledger) UpToDate() bool {
	return l.Version >= LedgerVersion() && l.Number > 0 && !l.Lacking && !l.Unindexed && !l.Changed
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
	if l.Version > 0 && l.Version < oldestLedger {
		return &PoolError{pool, fmt.Sprintf("its ledger has version %d, from which this program does not lead on: it does from version %d", l.Version, oldestLedger),
			"migrate it first with a program for that version, which docs/upgrades.md names"}
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
	if l.Version == LedgerVersion() {
		changed, err := ours().changed(ctx, conn)
		if err != nil {
			return l, err
		}
		l.Changed = len(changed) > 0
	}
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
	var l Ledger
	conn, err := pgx.ConnectConfig(ctx, cfg) // of thousands of databases each costs one connection
	if err == nil {
		defer conn.Close(context.WithoutCancel(ctx))
		_, err = RequireSession(ctx, conn, pool)
	}
	if err == nil {
		l, err = ReadLedger(ctx, conn)
	}
	if err == nil {
		err = l.Usable(pool)
	}
	if BehindPooler(err) {
		err = NoSession(pool)
	}
	if err == nil && (l.Version < LedgerVersion() || l.Unindexed || l.Changed) {
		done.Steps, err = update(ctx, conn, pool, ours(), &waiting{tell: waits})
	}
	if err != nil {
		return done, fmt.Errorf("migrate: %w", err)
	}
	if number > 0 {
		if _, err := NumberPool(ctx, conn, number, pool); err != nil {
			return done, err
		}
	}
	if l.Version == 0 {
		// While a day's partition is made, jobs that finish are refused for a moment: those of
		// a new pool's first minute need not be. What fails here, a holder tries again.
		_, _ = KeepDays(ctx, conn, 24*time.Hour)
	}
	if done.Grants, err = Regrant(ctx, conn); err != nil {
		return done, err
	}
	if done.Holders, err = Holders(ctx, conn); err != nil || number == 0 && l.Number == 0 {
		return done, err
	}
	server, err := ServerIs(ctx, conn)
	if err == nil {
		err = server.Usable(pool)
	}
	return done, err
}

// update applies the steps that a ledger lacks, each in a transaction of its own unless it says otherwise,
// and makes the indexes that days of finished jobs lack.
func update(ctx context.Context, conn *pgx.Conn, pool string, to *ledgerText, w *waiting) (done []Migration, err error) {
	cfg := conn.Config()
	if err := prepareLedger(ctx, conn, pool); err != nil {
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
		err := to.apply(ctx, conn, func(version int64, name string, took time.Duration) {
			done = append(done, Migration{Version: version, Name: name, Took: took})
		})
		if err == nil {
			err = buildIndexes(ctx, conn)
		}
		if err != nil && ctx.Err() != nil && inTheWay != "" {
			return done, fmt.Errorf("%s: %w", inTheWay, err)
		}
		if hasCode(err, codeDependents) || hasCode(err, codeUnsupported) {
			return done, nameDependents(ctx, conn, err)
		}
		if !hasCode(err, codeLockTimeout) {
			return done, err
		}
		inTheWay = cmp.Or(w.seenLately(), blockerOf(ctx, conn))
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
func nameDependents(ctx context.Context, conn *pgx.Conn, err error) error {
	var (
		found []string
		n     int
	)
	if asked := conn.QueryRow(ctx, sqlMigrationDependents).Scan(&found, &n); asked != nil || n == 0 {
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
func buildIndexes(ctx context.Context, conn *pgx.Conn) error {
	missing, err := missingIndexes(ctx, conn)
	if err != nil {
		return err
	}
	return oneByOne(ctx, conn, missing)
}

const (
	makeSchema = "DO $$ BEGIN IF to_regnamespace('tenure') IS NULL THEN CREATE SCHEMA IF NOT EXISTS tenure; END IF; END $$" // even with IF NOT EXISTS it is asked first who may make one

	makeMigrationTable = `DO $$ BEGIN
		IF to_regclass('tenure.migration') IS NULL THEN
			CREATE TABLE IF NOT EXISTS tenure.migration (id integer PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY,
				version_id bigint NOT NULL, is_applied boolean NOT NULL, tstamp timestamp NOT NULL DEFAULT now());
		END IF;
	END $$`
)

// prepareLedger makes the schema, and the table that says which steps were applied and that who applies them holds.
// Others may be making these at the same time.
func prepareLedger(ctx context.Context, conn *pgx.Conn, pool string) error {
	user, database := conn.Config().User, conn.Config().Database
	pause := backoff.Backoff{Policy: ddlRetry}
	for began := time.Now(); ; {
		owns := false
		_, err := conn.Exec(ctx, makeSchema)
		if hasCode(err, codeNoPrivilege) {
			return (&PoolError{pool, "its user may not make schema tenure",
				fmt.Sprintf("migrate as the database's owner, or as who is to own the ledger; or run, as a superuser or the database's owner: GRANT CREATE ON DATABASE %s TO %s; or: CREATE SCHEMA tenure AUTHORIZATION %[2]s;", ident(database), ident(user))}).Because(err)
		}
		if err == nil {
			err = conn.QueryRow(ctx, "SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'tenure'").Scan(&owns)
		}
		if err == nil && !owns {
			return notSchemasOwner(user, nil)
		}
		if err == nil {
			_, err = conn.Exec(ctx, makeMigrationTable)
		}
		others := slices.ContainsFunc([]string{codeUniqueViolation, codeDuplicateTable, codeDuplicateSchema, codeDuplicateObject, codeLockTimeout}, func(c string) bool { return hasCode(err, c) })
		if !others || time.Since(began) > ddlPatience {
			return explain(err, "make schema tenure")
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause.Next()):
		}
	}
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
