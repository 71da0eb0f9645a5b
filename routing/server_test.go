package routing

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/internal/timeline"
	"github.com/tenurehq/tenure/tenancy"
)

func onePool(dsn string) Config {
	c := DefaultConfig()
	c.Pools = map[string]PoolConfig{"main": {DSN: dsn}}
	c.Tenants.Static = map[tenancy.ID]TenantConfig{"acme": {Pool: "main"}}
	return c
}

// A pool notices when its DSN leads elsewhere than before.
func TestTheServerBehindADSN(t *testing.T) {
	t.Parallel()
	s := pgtest.Server(t, devpg.Options{})
	require.NoError(t, s.CreateDatabase(t.Context(), "main"))
	require.NoError(t, storetest.Prepare(t.Context(), s.DSN("main"), "main", 1))
	r, err := New(onePool(s.DSN("main")), zap.NewNop())
	require.NoError(t, err)
	other := listenTo(r)
	require.NoError(t, r.Start(t.Context()))
	defer func() { require.NoError(t, r.Stop(context.WithoutCancel(t.Context()))) }()
	p, _ := r.Pool("main")
	connect := func() error {
		p.Jobs().Reset()
		if err := p.Jobs().Ping(t.Context()); err != nil {
			return err
		}
		c, err := p.ConnectLock(t.Context())
		if err == nil {
			err = c.Close(t.Context())
		}
		return err
	}
	require.NoError(t, connect())

	var data string
	require.NoError(t, p.Jobs().QueryRow(t.Context(), "SHOW data_directory").Scan(&data))
	require.NoError(t, os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o644))
	require.NoError(t, s.Restart(t.Context(), false))
	require.ErrorContains(t, connect(), "its DSN leads to a standby")
	conn, err := pgx.Connect(t.Context(), s.DSN("main"))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "SELECT pg_promote()")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	require.NoError(t, connect(), "promoted")

	server, installed := p.knownLedger()
	p.Jobs().Reset()
	conn, err = pgx.Connect(t.Context(), s.DSN("postgres"))
	require.NoError(t, err)
	for _, sql := range []string{"ALTER DATABASE main RENAME TO kept", "CREATE DATABASE main"} {
		_, err = conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.ErrorContains(t, connect(), "its DSN leads to a database without its ledger")
	require.NoError(t, storetest.Prepare(t.Context(), s.DSN("main"), "main", 1))
	require.ErrorContains(t, connect(), `leads to another ledger than before, in database "main" (made `+madeAt(installed)[:13], "an empty one")
	for _, sql := range []string{"DROP DATABASE main WITH (FORCE)", "ALTER DATABASE kept RENAME TO main"} {
		_, err = conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.NoError(t, conn.Close(t.Context()))
	require.NoError(t, connect(), "its own again")

	successor := timeline.New(zap.NewNop())
	successor.Reach(timeline.Stamp{Cluster: timeline.ClusterOf(server, "main"), Timeline: 9})
	require.NoError(t, r.Timelines().Hear(otherName, successor.Reached()))
	require.NoError(t, connect(), "it was only said")
	other.knows.Store(successor)
	require.NoError(t, r.Timelines().Hear(otherName, successor.Reached()))
	require.Eventually(t, func() bool { return connect() != nil }, 10*time.Second, time.Millisecond)
	require.ErrorContains(t, connect(), "leads to a primary that was replaced (timeline 2; other-00000000 has reached timeline 9)")
	p.mu.Lock()
	p.found.systemID = "7000000000000000000"
	p.mu.Unlock()
	require.ErrorContains(t, connect(), "leads to another server than before")
}

// A standby is refused whose primary's timeline cannot be read, and so was never known.
func TestAStandbyOfAServerThatHidesItsTimeline(t *testing.T) {
	t.Parallel()
	storetest.On(t, storetest.Aurora)
	s := pgtest.Server(t, devpg.Options{})
	require.NoError(t, s.CreateDatabase(t.Context(), "main"))
	require.NoError(t, storetest.PrepareFor(t.Context(), t, s.DSN("main"), "main", 1))
	core, logs := observer.New(zap.InfoLevel)
	r, err := New(onePool(storetest.AsRuntime(s.DSN("main"))), zap.New(core))
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context()))
	defer func() { require.NoError(t, r.Stop(context.WithoutCancel(t.Context()))) }()
	p, _ := r.Pool("main")
	require.NoError(t, p.Jobs().Ping(t.Context()))
	require.Equal(t, 1, logs.FilterMessageSnippet("this server's timeline cannot be read").Len())

	conn, err := pgx.Connect(t.Context(), s.DSN("main"))
	require.NoError(t, err)
	var data string
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW data_directory").Scan(&data))
	require.NoError(t, conn.Close(t.Context()))
	require.NoError(t, os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o644))
	require.NoError(t, s.Restart(t.Context(), false))
	p.Jobs().Reset()
	require.ErrorContains(t, p.Jobs().Ping(t.Context()), "its DSN leads to a standby")
}

// What was read and what is always the same have nothing to do with one another, as while the
// right to read it is given or taken.
func TestAConstantTimelineIsComparedToNone(t *testing.T) {
	t.Parallel()
	read, constant := stampOf(store.ServerState{ID: "7", Timeline: 3}, "main"), stampOf(store.ServerState{ID: "7", Timeline: 1, Refused: "no"}, "main")
	require.Equal(t, timeline.Stamp{Cluster: timeline.ClusterOf("7", "main"), Timeline: 3}, read)
	require.EqualValues(t, 1, constant.Timeline)
	require.NotEqual(t, read.Cluster, constant.Cluster)
}

// PgBouncer answers like this to a start with settings it does not track.
func TestBehindAPooler(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b := pgproto3.NewBackend(c, c)
			if _, err := b.ReceiveStartupMessage(); err == nil {
				b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: enable_seqscan"})
				_ = b.Flush() // the client has gone if this fails
			}
			c.Close()
		}
	}()
	refusedAsPooler(t, l.Addr().String())
}

func refusedAsPooler(t *testing.T, addr string) {
	t.Helper()
	r, err := New(onePool("postgres://postgres@"+addr+"/main?sslmode=disable"), zap.NewNop())
	require.NoError(t, err)
	err = r.Start(t.Context())
	require.ErrorContains(t, err, "keeps no session with its settings, as PgBouncer in transaction mode")
	require.ErrorContains(t, err, "point dsn at Postgres itself")
}

// PgBouncer that was told to ignore those settings lets the connection through without
// them.
func TestBehindAPoolerThatIgnoresSettings(t *testing.T) {
	t.Parallel()
	s := pgtest.Server(t, devpg.Options{})
	require.NoError(t, s.CreateDatabase(t.Context(), "main"))
	require.NoError(t, storetest.Prepare(t.Context(), s.DSN("main"), "main", 1))
	direct, err := pgx.ParseConfig(s.DSN("main"))
	require.NoError(t, err)
	network, address := pgconn.NetworkAddress(direct.Host, direct.Port)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial(network, address)
			if err != nil {
				client.Close()
				return
			}
			start, err := pgproto3.NewBackend(client, client).ReceiveStartupMessage()
			if m, ok := start.(*pgproto3.StartupMessage); ok && err == nil {
				m.Parameters = map[string]string{"user": "postgres", "database": "main"}
				f := pgproto3.NewFrontend(server, server)
				f.Send(m)
				_ = f.Flush() // else the client finds out
			}
			go func() { _, _ = io.Copy(server, client); server.Close() }()
			go func() { _, _ = io.Copy(client, server); client.Close() }()
		}
	}()
	refusedAsPooler(t, l.Addr().String())
}
