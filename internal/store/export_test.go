package store

import (
	"context"
	"io/fs"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
)

// QueryFiles and LedgerFiles are the SQL as it is compiled in, which a test may look at: it is what a
// mutant changes, and not the files.
var QueryFiles, LedgerFiles = queryFiles, ledgerFiles

// Fill puts parts in their places.
var Fill = fill

// OrderApart is orderApart.
var OrderApart = orderApart

// CountTogether is countTogether.
var CountTogether = countTogether

// MigrateTo is [Migrate] to a ledger that has these files, too, or instead of its own of the same name.
func MigrateTo(ctx context.Context, cfg *pgx.ConnConfig, files map[string]string) ([]Migration, error) {
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	names, err := fs.Glob(ledgerFiles, "*/*.sql")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if text, err := ledgerFiles.ReadFile(name); err == nil && all[name] == nil {
			all[name] = &fstest.MapFile{Data: text}
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return update(ctx, conn, "main", ledgerOf(all), &waiting{})
}
