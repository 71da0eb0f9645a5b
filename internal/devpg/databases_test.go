//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package devpg

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestAt_pointsAtAnyDatabaseOfTheInstance(t *testing.T) {
	t.Parallel()
	const odd = `it's a "\ name`
	for name, dsn := range map[string]string{
		"url":             "postgres://u:p%20w@h:5433/first?sslmode=disable",
		"url, no path":    "postgresql://u@h:5433",
		"url, parameter":  "postgres://u@h:5433/?dbname=first&application_name=x",
		"url, socket":     "postgres://u@/first?host=/tmp&port=5433",
		"keyword, values": "host=h port=5433 user=u dbname=first",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := At(dsn)
			require.NoError(t, err)
			before, err := pgx.ParseConfig(dsn)
			require.NoError(t, err)
			after, err := pgx.ParseConfig(d.DSN(odd))
			require.NoError(t, err)
			require.Equal(t, odd, after.Database)
			require.Equal(t, before.Host, after.Host)
			require.Equal(t, before.Port, after.Port)
			require.Equal(t, before.Password, after.Password)
			require.Equal(t, before.RuntimeParams, after.RuntimeParams)
		})
	}
}

func TestAt_refusesNonsenseAndHidesPasswords(t *testing.T) {
	t.Parallel()
	_, err := At("postgres://u:secret@h:notaport/db")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}

func TestDatabases_createCloneDrop(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{})
	ctx := t.Context()
	const odd = `A "b" ünd c`
	require.NoError(t, s.CreateDatabase(ctx, odd))
	require.NoError(t, run(ctx, s.DSN(odd), "CREATE TABLE things AS SELECT 1 AS id"))

	require.NoError(t, s.CloseDatabase(ctx, odd))
	require.NoError(t, s.CloneDatabase(ctx, odd, "copy"))
	require.NoError(t, run(ctx, s.DSN("copy"), "INSERT INTO things VALUES (2)"))
	require.Equal(t, 2, value[int](t, s.DSN("copy"), "SELECT count(*) FROM things"))

	require.NoError(t, s.OpenDatabase(ctx, odd))
	require.Equal(t, 1, value[int](t, s.DSN(odd), "SELECT count(*) FROM things"), "the template must not see its copy's rows")

	require.ErrorContains(t, s.CreateDatabase(ctx, "copy"), `create database "copy"`)
	require.NoError(t, s.DropDatabase(ctx, "copy"))
	require.NoError(t, s.DropDatabase(ctx, "copy"), "dropping twice is no error")
}

func TestDatabases_dropEndsSessions(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{})
	require.NoError(t, s.CreateDatabase(t.Context(), "busy"))
	conn := connect(t, s.DSN("busy"))
	require.NoError(t, s.DropDatabase(t.Context(), "busy"))
	require.Error(t, conn.Ping(t.Context()))
}

func TestDatabases_oneIsDownAlone(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{})
	ctx := t.Context()
	require.NoError(t, s.CreateDatabase(ctx, "a"))
	require.NoError(t, s.CreateDatabase(ctx, "b"))
	a, b := connect(t, s.DSN("a")), connect(t, s.DSN("b"))

	require.NoError(t, s.CloseDatabase(ctx, "a"))
	require.Error(t, a.Ping(ctx))
	require.Error(t, run(ctx, s.DSN("a"), "SELECT 1"))
	require.NoError(t, b.Ping(ctx))

	require.NoError(t, s.OpenDatabase(ctx, "a"))
	require.NoError(t, run(ctx, s.DSN("a"), "SELECT 1"))
}
