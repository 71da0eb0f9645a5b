package store

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed ledger/*.sql functions/*.sql
var ledgerFiles embed.FS

const (
	baselineVersion = 56                  // of ledger/baseline.sql
	oldestLedger    = baselineVersion - 1 // that the steps lead on from
)

// A ledgerText is the ledger as its files say it: docs/upgrades.md tells how they are written.
type ledgerText struct {
	baseline  string       // makes what an empty database lacks, but for the functions
	steps     []ledgerStep // those that lead on from there, and from a ledger of the version before it
	functions []function   // by name
}

type ledgerStep struct {
	version    int64
	name, text string
}

// outsideTx begins a step that is executed statement by statement, in no transaction.
const outsideTx = "-- Outside of a transaction.\n"

// A function is a file that makes one, or those of one name.
type function struct{ name, text, digest string }

// ledgerOf reads the files of a ledger.
func ledgerOf(files fs.FS) *ledgerText {
	var t ledgerText
	names, err := fs.Glob(files, "*/*.sql")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err) // embedded
		}
		base := path.Base(name)
		number, _, _ := strings.Cut(base, "_")
		if version, err := strconv.ParseInt(number, 10, 64); err == nil {
			t.steps = append(t.steps, ledgerStep{version, base, string(text)})
		} else if path.Dir(name) == "functions" {
			text := fill(string(text))
			digest := sha256.Sum256([]byte(text))
			t.functions = append(t.functions, function{strings.TrimSuffix(base, ".sql"), text, hex.EncodeToString(digest[:])})
		} else {
			t.baseline = string(text)
		}
	}
	return &t
}

// ours is this program's.
var ours = sync.OnceValue(func() *ledgerText { return ledgerOf(ledgerFiles) })

// LedgerVersion is the version that [Migrate] brings a ledger to: the number of the last
// step in ledger/. This program works on ledgers of that version, and on newer ones
// whose oldest_program is not above it.
func LedgerVersion() int64 { return ours().version() }

func (t *ledgerText) version() int64 { return t.steps[len(t.steps)-1].version }

// apply brings a ledger to this version, and tells of each step that is done. Functions that are new are made before
// the steps, which may need them and which nobody calls yet; those that have changed are made again behind them, as
// they may need what the steps have made. A ledger of a newer version keeps its own.
func (t *ledgerText) apply(ctx context.Context, conn *pgx.Conn, done func(version int64, name string, took time.Duration)) error {
	version, _, err := scanVersion(conn.QueryRow(ctx, sqlSchemaVersion))
	if err != nil || version > t.version() {
		return err
	}
	execute := func(version int64, name string, statements ...string) error {
		began := time.Now()
		err := inTx(ctx, conn, statements...)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		done(version, name, time.Since(began))
		return nil
	}
	switch {
	case version == 0:
		version = baselineVersion
		// Programs of version 55 look for each number up to theirs.
		numbers := fmt.Sprintf("INSERT INTO tenure.migration (version_id, is_applied) SELECT n, true FROM generate_series(0, %d) AS n", version)
		err = execute(version, "baseline.sql", unchecked, texts(t.functions), t.baseline, numbers, t.noteTexts(t.functions))
	case version < t.version():
		var lacking []function
		if lacking, err = t.lacking(ctx, conn); err == nil && len(lacking) > 0 {
			err = inTx(ctx, conn, unchecked, texts(lacking), sqlFunctionOwner)
		}
	}
	if err != nil {
		return err
	}
	for _, s := range t.steps {
		note := fmt.Sprintf("INSERT INTO tenure.migration (version_id, is_applied) VALUES (%d, true)", s.version)
		switch {
		case s.version <= version:
		case !strings.HasPrefix(s.text, outsideTx):
			err = execute(s.version, s.name, s.text, note)
		default:
			began := time.Now()
			if err = oneByOne(ctx, conn, append(statementsOf(s.text), note)); err == nil {
				done(s.version, s.name, time.Since(began))
			}
		}
		if err != nil {
			return err
		}
	}
	changed, err := t.changed(ctx, conn)
	if err != nil || len(changed) == 0 {
		return err
	}
	var names []string
	for _, f := range changed {
		names = append(names, f.name)
	}
	if most := 5; len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(names)-most))
	}
	return execute(t.version(), "functions "+strings.Join(names, ", "), nobodyCalls, texts(changed), sqlFunctionOverloads, t.noteTexts(changed), sqlFunctionOwner)
}

// nobodyCalls waits until no transaction is at the door, and keeps others from there: a call that is under way would go on with a
// function that is dropped, and fail.
const nobodyCalls = "LOCK TABLE tenure.door IN ACCESS EXCLUSIVE MODE"

// unchecked has functions be made before the tables that they are about.
const unchecked = "SET LOCAL check_function_bodies = off"

func inTx(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, strings.Join(statements, ";\n"))
		return err
	})
}

var endOfStatement = regexp.MustCompile(`(?m);[ \t]*(--.*)?$`)

// statementsOf are a step's statements, each of which ends with a line.
func statementsOf(text string) (all []string) {
	from := 0
	for _, end := range endOfStatement.FindAllStringIndex(text, -1) {
		all = append(all, text[from:end[1]])
		from = end[1]
	}
	return all
}

// oneByOne executes statements each by itself, and leaves no setting of theirs behind.
func oneByOne(ctx context.Context, conn *pgx.Conn, statements []string) error {
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			_, _ = conn.Exec(ctx, "RESET lock_timeout")
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// lacking are the functions of which the ledger has none.
func (t *ledgerText) lacking(ctx context.Context, conn *pgx.Conn) ([]function, error) {
	have, err := list(ctx, conn, "look for functions", pgx.RowTo[string], sqlFunctionMade)
	return slices.DeleteFunc(slices.Clone(t.functions), func(f function) bool { return slices.Contains(have, f.name) }), err
}

// changed are the functions whose text is another than that in force.
func (t *ledgerText) changed(ctx context.Context, db DB) ([]function, error) {
	have, err := list(ctx, db, "look for functions", pgx.RowTo[string], sqlFunctionText)
	return slices.DeleteFunc(slices.Clone(t.functions), func(f function) bool { return slices.Contains(have, f.name+" "+f.digest) }), err
}

func texts(functions []function) string {
	var all strings.Builder
	for _, f := range functions {
		all.WriteString(f.text)
	}
	return all.String()
}

// noteTexts are the statements that note which text of functions is in force, and which functions there are.
func (t *ledgerText) noteTexts(functions []function) string {
	var names, rows []string
	for _, f := range t.functions {
		names = append(names, "'"+f.name+"'")
	}
	for _, f := range functions {
		rows = append(rows, fmt.Sprintf("('%s', '%s')", f.name, f.digest))
	}
	return "DELETE FROM tenure.function_text WHERE name NOT IN (" + strings.Join(names, ", ") + ");\n" +
		"INSERT INTO tenure.function_text (name, digest) VALUES " + strings.Join(rows, ", ") +
		" ON CONFLICT (name) DO UPDATE SET digest = excluded.digest"
}
