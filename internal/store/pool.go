package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"

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
	Triggers       bool
	Database       string // when the server started, and the database's name: what tells it from others as long as they run
	Migrated       bool
	LockLogged     bool
	LockKeyed      bool
	Citus          string // how a Citus cluster would take part in transactions; "": it would not
}

// scanIdentity reads the answer to sqlPoolIdentity, which needs no ledger.
func scanIdentity(row pgx.Row) (i Identity, err error) {
	err = row.Scan(&i.Version, &i.Standby, &i.ReadOnly, &i.Encoding, &i.StandardString, &i.Triggers,
		&i.Database, &i.Migrated, &i.LockLogged, &i.LockKeyed, &i.Citus)
	return i, explain(err, "identify the database")
}

// Risks is what keeps no database from being a pool, but will hurt somebody.
type Risks struct {
	Version        int // server_version_num
	FSync          bool
	FullPageWrites bool
	NoSchema       []string // schemas that do not exist
	MakeSchemas    []string // what would mend that
	Mighty         bool     // the pool's user is a superuser, or bypasses row-level security
	RefusedRoles   []string // roles that no tenant can have, and why; nothing else is said of their tenants
	NoRole         []string // roles that do not exist, or that the pool's user is no member of
	MakeRoles      []string // what would mend that
	MightyRoles    []string // roles that are superusers, or bypass row-level security
	NoUsage        []string // roles, or the pool's user where there is none, that may not use their schema, as "role in schema"
	UsageGrants    []string // what would mend that
	EnqueueGrants  []string // what roles lack for enqueuing in their transactions
}

// DatabaseIs is which of its server's databases a connection leads to.
func DatabaseIs(ctx context.Context, db DB) (oid int64, err error) {
	err = db.QueryRow(ctx, sqlServerDatabase).Scan(&oid)
	return oid, explain(err, "ask the server which database it is")
}

// Server says which server a pool is on, and how many connections there are for its users.
func Server(ctx context.Context, db DB) (id string, connections int, err error) {
	err = db.QueryRow(ctx, sqlPoolServer).Scan(&id, &connections)
	return id, connections, explain(err, "ask the server who it is")
}

// LookForRisks asks a pool for its risks; schemas and, in the same order, roles are those
// that its tenants are to have, "" being the pool's own user.
func LookForRisks(ctx context.Context, db DB, schemas, roles []string) (r Risks, err error) {
	refused, err := RefusedRoles(ctx, db, "", roles)
	if err != nil {
		return r, err
	}
	for _, role := range slices.Sorted(maps.Keys(refused)) {
		r.RefusedRoles = append(r.RefusedRoles, fmt.Sprintf("role %q %s", role, refused[role]))
	}
	schemas, roles = slices.Clone(schemas), slices.Clone(roles)
	for i := len(roles) - 1; i >= 0 && len(refused) > 0; i-- {
		if refused[roles[i]] != "" {
			schemas, roles = slices.Delete(schemas, i, i+1), slices.Delete(roles, i, i+1)
		}
	}
	err = db.QueryRow(ctx, sqlPoolRisks, schemas, roles).Scan(&r.Version, &r.FSync, &r.FullPageWrites, &r.Mighty, &r.NoSchema, &r.MakeSchemas, &r.NoRole, &r.MakeRoles, &r.MightyRoles, &r.NoUsage, &r.UsageGrants, &r.EnqueueGrants)
	return r, explain(err, "look for risks")
}

// Shared is what is wrong with the schemas that tenants have in common.
type Shared struct {
	Missing   []string
	Open      []string // everybody may make something there, which all tenants' statements may find
	Unreached []string // extensions elsewhere, whose types and operators no tenant's statement finds
}

// LookAtShared asks a pool about the schemas that its tenants have in common.
func LookAtShared(ctx context.Context, db DB, schemas []string) (s Shared, err error) {
	err = db.QueryRow(ctx, sqlSharedSchemas, schemas).Scan(&s.Missing, &s.Open, &s.Unreached)
	return s, explain(err, "look at the schemas that tenants share")
}

// LosesRole says whether the server's minor version may put a statement under
// another role than the one that was set (CVE-2024-10978).
func (r Risks) LosesRole() bool {
	fixed := map[int]int{14: 14, 15: 9, 16: 5, 17: 1}
	return r.Version%10000 < fixed[r.Version/10000]
}

// minVersion is the oldest that the tests pass on: make test-postgres.
const minVersion = 14_00_00

// Usable says why the database cannot be a pool at all, migrated or not; nil
// when it can.
func (i Identity) Usable(pool string) error {
	switch {
	case i.Version < minVersion:
		return &PoolError{pool, fmt.Sprintf("PostgreSQL %d is too old", i.Version/10000), fmt.Sprintf("%d or newer is needed", minVersion/10000)}
	case i.Standby:
		return &PoolError{pool, "the server is a standby", "point the DSN at the primary, or add target_session_attrs=read-write"}
	case i.ReadOnly:
		return &PoolError{pool, "its transactions are read-only", "unset default_transaction_read_only for this user and database"}
	case i.Encoding != "UTF8":
		return &PoolError{pool, "its encoding is " + i.Encoding, "use a database created with ENCODING 'UTF8'"}
	case !i.StandardString:
		return &PoolError{pool, "standard_conforming_strings is off", "turn it on for this database"}
	case !i.Triggers:
		return &PoolError{pool, "session_replication_role is replica, so that no trigger does what is asked of the ledger", "unset it for this user and database"}
	case i.Citus != "": // seen with 13.2: 12 crashes while 20,034 HandleTx jobs ran, 63 took effect twice
		return &PoolError{pool, i.Citus + ", which commits the parts of a transaction on several nodes one after the other, so that a crash has jobs take effect twice",
			"make each worker node a pool, with citus.enable_ddl_propagation=off and citus.enable_schema_based_sharding=off in its DSN, and migrate these"}
	case !i.LockLogged:
		return &PoolError{pool, "tenure.acquire_lock is UNLOGGED, so a crash would let an old holder in again", "ALTER TABLE tenure.acquire_lock SET LOGGED"}
	case !i.LockKeyed:
		return &PoolError{pool, "tenure.acquire_lock has lost UNIQUE (name, epoch), so nothing would fence an old holder", "ALTER TABLE tenure.acquire_lock ADD UNIQUE (name, epoch)"}
	}
	return nil
}

// NoLedger is ErrNotMigrated of a pool that has no ledger at all.
func NoLedger(pool string) error {
	return (&PoolError{pool, "has no ledger", fmt.Sprintf("run: tenure migrate --pool %s; if the pool had jobs, restore it first, as they and its number are gone", pool)}).Because(ErrNotMigrated)
}

// OlderLedger says that a pool has no ledger, or which version it has, where this program's own is needed.
func OlderLedger(ctx context.Context, db DB, pool string) error {
	have, _, err := scanVersion(db.QueryRow(ctx, sqlSchemaVersion))
	if err != nil {
		return err
	}
	return olderLedger(pool, have)
}

func olderLedger(pool string, have int64) error {
	if have == 0 {
		return NoLedger(pool)
	}
	return &PoolError{pool, fmt.Sprintf("its ledger has version %d, and this program needs version %d or newer", have, LedgerVersion()),
		fmt.Sprintf("run: tenure migrate --pool %s", pool)}
}

// Verify returns the pool's number when this program can use its ledger like this, and an
// error that says which command helps when it cannot. It can on the ledger it was built for, and
// on newer ones that say that it may: so the ledgers are migrated first, and the nodes
// follow one by one.
func Verify(ctx context.Context, db DB, pool string, use Use) (number int, err error) {
	// Whose database it is comes first: what is to be granted there would be granted on
	// another pool's ledger.
	number, name, unread := scanNumber(db.QueryRow(ctx, sqlPoolNumber)) // it may have no ledger, or be closed to this user
	if unread == nil && number > 0 {
		if err := checkName(pool, name); err != nil {
			return 0, err
		}
	}
	if err := verifyGrants(ctx, db, pool, use); err != nil {
		return 0, err
	}
	i, err := scanIdentity(db.QueryRow(ctx, sqlPoolIdentity))
	if err != nil {
		return 0, err
	}
	if err := i.Usable(pool); err != nil {
		return 0, err
	}
	want := LedgerVersion()
	have, oldest, err := scanVersion(db.QueryRow(ctx, sqlSchemaVersion))
	switch {
	case err != nil:
		return 0, err
	case have < want:
		return 0, olderLedger(pool, have)
	case want < oldest:
		return 0, newerLedger(pool, have, oldest)
	}
	switch {
	case unread != nil:
		return 0, unread
	case number == 0:
		return 0, &PoolError{pool, "its ledger has no number yet", fmt.Sprintf("run: tenure migrate --pool %s", pool)}
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

// scanVersion reads the answer to sqlSchemaVersion: a ledger's version, and the oldest version
// whose programs may work on it; 0: there is no ledger.
func scanVersion(row pgx.Row) (version, oldestProgram int64, err error) {
	err = explain(row.Scan(&version, &oldestProgram), "read the ledger's version")
	if errors.Is(err, ErrNotMigrated) {
		return 0, 0, nil
	}
	return version, oldestProgram, err
}

// scanNumber reads the answer to sqlPoolNumber: the pool's number and name; 0: it has none yet.
func scanNumber(row pgx.Row) (number int, name string, err error) {
	err = row.Scan(&number, &name)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, "", nil
	}
	return number, name, explain(err, "read the pool's number")
}

// IsGone says whether an error says that a database cannot be reached, or ends its sessions. That time ran out says
// neither: the statement may have been slow, or the caller's time short.
func IsGone(err error) bool {
	var pg *pgconn.PgError
	var socket *net.OpError
	return errors.As(err, new(*pgconn.ConnectError)) || errors.As(err, &socket) && socket.Op != "listen" || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "57P0") || strings.HasPrefix(pg.Code, "08") || pg.Code == codeTooMany)
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
		fix = fmt.Sprintf("correct the DSN; if the pool had jobs, restore its database, as an empty one begins their ids anew; if it is new, create the database, and run: tenure migrate --pool %s", pool)
	case codeInvalidSetting, codeUnknownSetting:
		if !errors.As(err, new(*pgconn.ConnectError)) {
			return err
		}
		fix = "correct that setting in the DSN, or take it out"
	case codeNoPrivilege:
		fix = "grant it to that user, or correct the user in the DSN"
	default:
		return err
	}
	return (&PoolError{pool, fmt.Sprintf("its server refuses user %q of database %q: %s", c.User, c.Database, pg.Message), fix}).Because(err)
}

// PoolError says that something is wrong with a pool's database.
type PoolError struct {
	Pool string
	What string
	Fix  string
}

func (e *PoolError) Error() string {
	if e.Fix == "" {
		return fmt.Sprintf("pool %s: %s", e.Pool, e.What)
	}
	return fmt.Sprintf("pool %s: %s: %s", e.Pool, e.What, e.Fix)
}

// Because returns e as an error that callers know as cause, too.
func (e *PoolError) Because(cause error) error { return causedError{e, cause} }

type causedError struct {
	*PoolError
	cause error
}

func (e causedError) Unwrap() []error { return []error{e.PoolError, e.cause} }
