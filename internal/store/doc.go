// Package store is the ledger: its tables (ledger/) and functions (functions/), of
// which schema.sql shows the whole, every SQL statement of Tenure, and the way from
// a row to a job.Record and back.
//
// # What it promises
//
// Each statement stands in a file of its own in queries/, with a comment on what
// it locks, and is prepared against a migrated database by a test. All names are
// qualified and need no search_path. Every move of a job between tables is one
// statement. Statements that only the holder of a pool's acquire lock may run
// carry the fence (session and epoch) and change nothing without it; statements
// that end a run carry the job's turn and leave a job alone whose claim was lost.
// Postgres' error codes become this package's errors here and nowhere else.
//
// Functions are safe for concurrent use as far as their DB is: a *pgxpool.Pool
// is, a *pgx.Conn and a pgx.Tx are not.
//
// # What it leaves to others
//
// When to call what (package acquisition), which database (package routing), and
// time: only the database's clock is ever written or compared.
package store
