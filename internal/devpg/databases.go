package devpg

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Databases creates and drops databases on one PostgreSQL instance, which need
// not be ours. Each call opens a connection of its own and closes it.
type Databases struct {
	dsn string
	// copyFiles takes half the time of logging every page, and drops faster too, but asks for a checkpoint:
	// only for a server of ours without fsync.
	copyFiles bool
}

// At manages the databases of the instance dsn points at, a URL or a
// keyword/value string. Its role must be allowed to create databases.
func At(dsn string) (*Databases, error) {
	if _, err := pgx.ParseConfig(dsn); err != nil {
		return nil, err // says "cannot parse" and hides the password
	}
	return &Databases{dsn: dsn}, nil
}

// DSN is the connection string of a database, over the unix socket when the
// instance is a [Server].
func (d *Databases) DSN(database string) string { return withDatabase(d.dsn, database) }

// CreateDatabase makes an empty database.
func (d *Databases) CreateDatabase(ctx context.Context, name string) error {
	// template1 may have been added to on a server that is not ours, and a session in it would block us.
	return d.CloneDatabase(ctx, "template0", name)
}

// CloneDatabase copies a database. Nobody may be connected to the template: the
// server waits five seconds for sessions to go, then refuses.
func (d *Databases) CloneDatabase(ctx context.Context, template, name string) error {
	sql := "CREATE DATABASE " + quote(name) + " TEMPLATE " + quote(template)
	if d.copyFiles {
		sql += " STRATEGY FILE_COPY"
	}
	if err := d.exec(ctx, sql); err != nil {
		return fmt.Errorf("create database %q from %q: %w", name, template, err)
	}
	return nil
}

// DropDatabase ends the sessions of a database and removes it. One that does
// not exist is no error. The server waits five seconds for a session to end; one that does what cannot be
// interrupted, such as printing a large value, may take longer, and is waited for until ctx ends.
func (d *Databases) DropDatabase(ctx context.Context, name string) error {
	const objectInUse = "55006"
	for {
		err := d.exec(ctx, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)")
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == objectInUse && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return fmt.Errorf("drop database %q: %w", name, err)
		}
		return nil
	}
}

// CloseDatabase refuses new sessions and ends the present ones, and returns when
// they are gone: a pool that is down, or a template at rest.
func (d *Databases) CloseDatabase(ctx context.Context, name string) error {
	if err := d.exec(ctx, "ALTER DATABASE "+quote(name)+" ALLOW_CONNECTIONS false"); err != nil {
		return fmt.Errorf("close database %q: %w", name, err)
	}
	const patience = 5000 // milliseconds, for one session
	err := d.exec(ctx, "SELECT pg_terminate_backend(pid, $2) FROM pg_stat_activity WHERE datname = $1", name, patience)
	if err != nil {
		return fmt.Errorf("end the sessions of database %q: %w", name, err)
	}
	return nil
}

// OpenDatabase undoes [Databases.CloseDatabase].
func (d *Databases) OpenDatabase(ctx context.Context, name string) error {
	if err := d.exec(ctx, "ALTER DATABASE "+quote(name)+" ALLOW_CONNECTIONS true"); err != nil {
		return fmt.Errorf("open database %q: %w", name, err)
	}
	return nil
}

func (d *Databases) exec(ctx context.Context, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, d.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // the statement's result is what counts
	_, err = conn.Exec(ctx, sql, args...)
	return err
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func withDatabase(dsn, database string) string {
	u, err := url.Parse(dsn)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		value := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(database)
		return dsn + " dbname='" + value + "'" // the last of a repeated keyword counts
	}
	u.Path, u.RawPath = "/"+database, ""
	if q := u.Query(); q.Has("dbname") || q.Has("database") {
		q.Del("dbname")
		q.Del("database")
		u.RawQuery = q.Encode()
	}
	return u.String()
}
