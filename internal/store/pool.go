package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Identity is what a pool's database says of itself.
type Identity struct {
	Version        int // server_version_num
	Standby        bool
	ReadOnly       bool
	Encoding       string
	StandardString bool
	Database       string // system identifier and database name: the same only for the same database
	Migrated       bool
	LockLogged     bool
	LockKeyed      bool
}

// Identify asks a database who it is; it needs no ledger.
func Identify(ctx context.Context, db DB) (i Identity, err error) {
	return scanIdentity(db.QueryRow(ctx, sqlPoolIdentity))
}

func scanIdentity(row pgx.Row) (i Identity, err error) {
	err = row.Scan(&i.Version, &i.Standby, &i.ReadOnly, &i.Encoding, &i.StandardString,
		&i.Database, &i.Migrated, &i.LockLogged, &i.LockKeyed)
	if err != nil {
		return i, fmt.Errorf("identify the database: %w", err)
	}
	return i, nil
}

// Risks is what keeps no database from being a pool, but will hurt somebody.
type Risks struct {
	Version        int // server_version_num
	FSync          bool
	FullPageWrites bool
	NoSchema       []string // schemas that do not exist
	Mighty         bool     // the pool's user is a superuser, or bypasses row-level security
	NoRole         []string // roles that do not exist, or that the pool's user is no member of
	MightyRoles    []string // roles that are superusers, or bypass row-level security
	NoUsage        []string // roles that may not use their schema, as "role in schema"
	UsageGrants    []string // what would mend that
	EnqueueGrants  []string // what roles lack for enqueuing in their transactions
}

// ServerIs is which server a connection leads to, and on which timeline it is; 0: it
// is a standby.
func ServerIs(ctx context.Context, db DB) (id string, timeline int32, err error) {
	if err := db.QueryRow(ctx, sqlServerIs).Scan(&id, &timeline); err != nil {
		return "", 0, fmt.Errorf("ask the server who it is: %w", err)
	}
	return id, timeline, nil
}

// DatabaseIs is which of its server's databases a connection leads to.
func DatabaseIs(ctx context.Context, db DB) (oid int64, err error) {
	if err := db.QueryRow(ctx, sqlServerDatabase).Scan(&oid); err != nil {
		return 0, fmt.Errorf("ask the server which database it is: %w", err)
	}
	return oid, nil
}

// BehindPooler tells whether a connect failed because something in between, such as
// PgBouncer, does not pass a session's settings on.
func BehindPooler(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "08P01" // protocol_violation; Postgres itself would know the parameters
}

// Server says which server a pool is on, how many connections there are for its users,
// and when the pool's ledger was made, in seconds by that server's clock.
func Server(ctx context.Context, db DB) (id string, connections int, installed float64, err error) {
	if err := db.QueryRow(ctx, sqlPoolServer).Scan(&id, &connections, &installed); err != nil {
		return "", 0, 0, fmt.Errorf("ask the server who it is: %w", err)
	}
	return id, connections, installed, nil
}

// SettingsPassed tells whether the settings of a lock's connection have reached its
// session: PgBouncer drops them if it is told to ignore them.
func SettingsPassed(ctx context.Context, db DB) (passed bool, err error) {
	if err := db.QueryRow(ctx, sqlPoolSettings).Scan(&passed); err != nil {
		return false, fmt.Errorf("ask for the session's settings: %w", err)
	}
	return passed, nil
}

// LookForRisks asks a pool for its risks; schemas and, in the same order, roles are those
// that its tenants are to have, "" being the pool's own user.
func LookForRisks(ctx context.Context, db DB, schemas, roles []string) (r Risks, err error) {
	err = db.QueryRow(ctx, sqlPoolRisks, schemas, roles).Scan(&r.Version, &r.FSync, &r.FullPageWrites, &r.Mighty, &r.NoSchema, &r.NoRole, &r.MightyRoles, &r.NoUsage, &r.UsageGrants, &r.EnqueueGrants)
	if err != nil {
		return r, fmt.Errorf("look for risks: %w", err)
	}
	return r, nil
}

// LosesRole says whether the server's minor version may put a statement under
// another role than the one that was set (CVE-2024-10978).
func (r Risks) LosesRole() bool {
	fixed := map[int]int{13: 17, 14: 14, 15: 9, 16: 5, 17: 1}
	return r.Version%10000 < fixed[r.Version/10000]
}

const minVersion = 13_00_00

// Usable says why the database cannot be a pool at all, migrated or not; nil
// when it can.
func (i Identity) Usable(pool string) error {
	switch {
	case i.Version < minVersion:
		return &PoolError{pool, fmt.Sprintf("PostgreSQL %d is too old", i.Version/10000), "13 or newer is needed"}
	case i.Standby:
		return &PoolError{pool, "the server is a standby", "point the DSN at the primary, or add target_session_attrs=read-write"}
	case i.ReadOnly:
		return &PoolError{pool, "its transactions are read-only", "unset default_transaction_read_only for this user and database"}
	case i.Encoding != "UTF8":
		return &PoolError{pool, "its encoding is " + i.Encoding, "use a database created with ENCODING 'UTF8'"}
	case !i.StandardString:
		return &PoolError{pool, "standard_conforming_strings is off", "turn it on for this database"}
	case !i.LockLogged:
		return &PoolError{pool, "tenure.acquire_lock is UNLOGGED, so a crash would let an old holder in again", "ALTER TABLE tenure.acquire_lock SET LOGGED"}
	case !i.LockKeyed:
		return &PoolError{pool, "tenure.acquire_lock has lost UNIQUE (name, epoch), so nothing would fence an old holder", "ALTER TABLE tenure.acquire_lock ADD UNIQUE (name, epoch)"}
	}
	return nil
}

// Verify returns the pool's number when this program can work on its ledger, and an error
// that says which command helps when it cannot. It can on the ledger it was built for, and
// on newer ones that say that it may: so the ledgers are migrated first, and the nodes
// follow one by one.
func Verify(ctx context.Context, db DB, pool string) (number int, err error) {
	if err := verifyGrants(ctx, db, pool); err != nil {
		return 0, err
	}
	i, err := Identify(ctx, db)
	if err != nil {
		return 0, err
	}
	if err := i.Usable(pool); err != nil {
		return 0, err
	}
	want := LedgerVersion()
	have, oldest, err := ledgerVersion(ctx, db)
	switch {
	case err != nil:
		return 0, err
	case have == 0:
		return 0, notMigrated{&PoolError{pool, "has no ledger", fmt.Sprintf("run: tenure migrate --pool %s", pool)}}
	case have < want:
		return 0, &PoolError{pool, fmt.Sprintf("its ledger has version %d, and this program needs version %d or newer", have, want),
			fmt.Sprintf("run: tenure migrate --pool %s", pool)}
	case want < oldest:
		return 0, newerLedger(pool, have, oldest)
	}
	number, name, err := poolNumber(ctx, db)
	switch {
	case err != nil:
		return 0, err
	case number == 0:
		return 0, &PoolError{pool, "its ledger has no number yet", fmt.Sprintf("run: tenure migrate --pool %s", pool)}
	}
	if err := checkName(pool, name); err != nil {
		return 0, err
	}
	return number, nil
}

// checkName refuses a database that was numbered under another name: the DSN leads to the
// wrong pool.
func checkName(pool, has string) error {
	if has == pool {
		return nil
	}
	return &PoolError{pool, fmt.Sprintf("the database says that it is pool %q", has), "correct the DSN, or name the pool as it was named"}
}

func newerLedger(pool string, have, oldest int64) error {
	return &PoolError{pool, fmt.Sprintf("its ledger has version %d, which only programs for version %d or newer can work on; this one is for version %d",
		have, oldest, LedgerVersion()), "run the newer tenure"}
}

// ledgerVersion is a ledger's version, and the oldest version whose programs may work on
// it; 0: there is no ledger.
func ledgerVersion(ctx context.Context, db DB) (version, oldestProgram int64, err error) {
	err = translate(db.QueryRow(ctx, sqlSchemaVersion).Scan(&version, &oldestProgram))
	if errors.Is(err, ErrNotMigrated) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read the ledger's version: %w", err)
	}
	return version, oldestProgram, nil
}

func poolNumber(ctx context.Context, db DB) (number int, name string, err error) {
	err = db.QueryRow(ctx, sqlPoolNumber).Scan(&number, &name)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, "", nil
	}
	if err != nil {
		return 0, "", fmt.Errorf("read the pool's number: %w", translate(err))
	}
	return number, name, nil
}

// Denied turns the error of a connection to a pool, or of a look at its ledger, into a
// PoolError if it says that this user gets nothing there as things are: another try would
// fail as well. Other errors come back as they are.
func Denied(pool string, c *pgx.ConnConfig, err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	fix := ""
	switch pg.Code {
	case codeBadPassword, codeNotLetIn:
		fix = "correct user and password in the DSN, or let the user in (CREATE ROLE, pg_hba.conf)"
	case codeNoDatabase:
		fix = fmt.Sprintf("correct the DSN; or create the database, and run: tenure migrate --pool %s", pool)
	case codeNoPrivilege:
		fix = "grant it to that user, or correct the user in the DSN"
	default:
		return err
	}
	return denied{&PoolError{pool, fmt.Sprintf("its server refuses user %q of database %q: %s", c.User, c.Database, pg.Message), fix}, err}
}

// denied is the PoolError of a database that refuses its user, which is also what the
// server said.
type denied struct {
	*PoolError
	cause error
}

func (e denied) Unwrap() []error { return []error{e.PoolError, e.cause} }

// PoolError says that something is wrong with a pool's database.
type PoolError struct {
	Pool string
	What string
	Fix  string
}

// notMigrated is the PoolError of a database without a ledger, which callers know
// as ErrNotMigrated, too.
type notMigrated struct{ *PoolError }

func (e notMigrated) Is(target error) bool { return target == ErrNotMigrated }
func (e notMigrated) Unwrap() error        { return e.PoolError }

func (e *PoolError) Error() string {
	if e.Fix == "" {
		return fmt.Sprintf("pool %s: %s", e.Pool, e.What)
	}
	return fmt.Sprintf("pool %s: %s: %s", e.Pool, e.What, e.Fix)
}
