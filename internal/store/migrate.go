package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
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

// newestMigration is the version of the last file in migrations/.
func newestMigration() int64 {
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

// lockPoll and lockPatience time the wait for another node's migration.
const (
	lockPoll     = 1 // s
	lockPatience = 300
)

// Migrate brings a pool's ledger to this program's version and returns what it
// applied. Concurrent calls wait for one another. A database whose ledger is
// newer is refused.
func Migrate(ctx context.Context, conn *pgx.ConnConfig, pool string) (done []Migration, err error) {
	db := stdlib.OpenDB(*conn)
	defer db.Close()
	p, err := provider(ctx, db)
	if err != nil {
		return nil, err
	}
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the schema version: %w", err)
	}
	if want := newestMigration(); have > want {
		return nil, newerSchema(pool, have, want)
	}
	results, err := p.Up(ctx)
	for _, r := range results {
		if r.Error == nil {
			done = append(done, Migration{Version: r.Source.Version, Name: r.Source.Path, Took: r.Duration})
		}
	}
	if err != nil {
		return done, fmt.Errorf("migrate: %w", err)
	}
	return done, nil
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

// PoolNumber returns the number a migrated database was given; 0: none yet.
func PoolNumber(ctx context.Context, db DB) (number int, name string, err error) {
	return poolNumber(ctx, db)
}

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
