package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// bed is Postgres of its own with pools and tenants in it.
type bed struct {
	servers []*devpg.Server // pool i is on server i modulo servers
	owner   string          // of the databases, and who connects to them; "": the superuser
	cfg     config.Config
	pools   []string
	tenants []tenancy.ID // tenant i lives in pool i modulo pools
}

// newBed starts Postgres with its default durability, on disk, and makes pools with
// tenants spread over them.
func newBed(ctx context.Context, pools, tenants int) (*bed, error) {
	return startBed(ctx, devpg.Options{Durable: true}, pools, tenants)
}

func startBed(ctx context.Context, o devpg.Options, pools, tenants int) (*bed, error) {
	server, err := devpg.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return newBedOn(ctx, []*devpg.Server{server}, "", pools, tenants)
}

// newBedOn lays it out on servers that run, which are the bed's from then on.
func newBedOn(ctx context.Context, servers []*devpg.Server, owner string, pools, tenants int) (*bed, error) {
	b := &bed{servers: servers, owner: owner, cfg: config.Default()}
	b.cfg.Node.Name = "loadtest"
	b.cfg.Node.Listen = "off"
	b.cfg.Pools = map[string]routing.PoolConfig{}
	b.cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{}
	if err := b.fill(ctx, pools, tenants); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bed) fill(ctx context.Context, pools, tenants int) error {
	for p := range pools {
		name := fmt.Sprintf("pool-%d", p+1)
		server := b.servers[b.serverOf(name)]
		if err := server.CreateDatabase(ctx, name); err != nil {
			return err
		}
		b.pools = append(b.pools, name)
		dsn := server.DSN(name)
		if b.owner != "" {
			if err := execOn(ctx, dsn, fmt.Sprintf("ALTER DATABASE %q OWNER TO %q", name, b.owner)); err != nil {
				return err
			}
			dsn = asUser(dsn, b.owner)
		}
		b.cfg.Pools[name] = routing.PoolConfig{DSN: dsn, MaxConns: 24}
	}
	schemas := map[string]string{} // by pool: statements
	for i := range tenants {
		id := tenancy.ID(fmt.Sprintf("tenant_%04d", i+1))
		pool := fmt.Sprintf("pool-%d", i%pools+1)
		b.tenants = append(b.tenants, id)
		b.cfg.Tenants.Static[id] = routing.TenantConfig{Pool: pool}
		schemas[pool] += schemaSQL(id)
	}
	if _, err := tenure.Migrate(ctx, b.cfg); err != nil {
		return err
	}
	for pool, sql := range schemas {
		if err := b.exec(ctx, pool, sql); err != nil {
			return err
		}
	}
	return nil
}

// hurry shortens the times to live of locks and sessions, and how often they are renewed; 1 is
// as they are by default.
func (b *bed) hurry(scale float64) {
	a := &b.cfg.Acquire
	for _, d := range []*time.Duration{&a.Lock.TTL, &a.Lock.RenewEvery, &a.Session.TTL, &a.Session.HeartbeatEvery} {
		*d = time.Duration(float64(*d) * scale)
	}
}

// schemaSQL makes a tenant's schema, for the effects of its jobs.
func schemaSQL(id tenancy.ID) string {
	return fmt.Sprintf("CREATE SCHEMA %s; CREATE TABLE %s.effect (job_id bigint NOT NULL, turn integer, member text, at timestamptz NOT NULL DEFAULT clock_timestamp());", id, id)
}

// serverOf is the number of the server that a pool is on.
func (b *bed) serverOf(pool string) int {
	var n int
	_, _ = fmt.Sscanf(pool, "pool-%d", &n) // it has that form: see fill
	return (n - 1) % len(b.servers)
}

// exec runs statements in a pool's database.
func (b *bed) exec(ctx context.Context, pool, sql string) error {
	return execOn(ctx, b.cfg.Pools[pool].DSN, sql)
}

func execOn(ctx context.Context, dsn, sql string) error {
	conn, err := connectTo(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// asUser is a server's DSN for another user.
func asUser(dsn, user string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		panic(err) // the server made it
	}
	u.User = url.User(user)
	return u.String()
}

// connect opens a connection of the scenario's own to a pool's database.
func (b *bed) connect(ctx context.Context, pool string) (*pgx.Conn, error) {
	return connectTo(ctx, b.cfg.Pools[pool].DSN)
}

// connectTo waits for a connection if there are none left.
func connectTo(ctx context.Context, dsn string) (conn *pgx.Conn, err error) {
	err = until(ctx, time.Minute, "no connection came free", func() (bool, error) {
		conn, err = pgx.Connect(ctx, dsn)
		var full *pgconn.PgError
		if errors.As(err, &full) && full.Code == "53300" {
			return false, wait(ctx, 100*time.Millisecond)
		}
		return err == nil, err
	})
	return conn, err
}

// enqueueChunk is how many jobs go into one EnqueueMany.
const enqueueChunk = 20_000

// enqueue makes a backlog of jobs that tenants have in equal shares.
func (b *bed) enqueue(ctx context.Context, tenants []tenancy.ID, jobs int, args func(n int) job.Args) error {
	c, err := tenure.NewClient(b.cfg)
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	defer c.Stop(ctx)
	for from := 0; from < jobs; from += enqueueChunk {
		entries := make([]tenure.Entry, 0, enqueueChunk)
		for i := from; i < min(from+enqueueChunk, jobs); i++ {
			entries = append(entries, tenure.Entry{Tenant: tenants[i%len(tenants)], Args: args(i)})
		}
		if _, err := c.EnqueueMany(ctx, entries); err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, s := range b.servers {
		if err := s.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "loadtest: stop Postgres:", err)
		}
	}
}

// node makes a node that runs registry's handlers.
func (b *bed) node(registry *job.Registry, opts ...tenure.NodeOption) (*tenure.Node, error) {
	return tenure.New(b.cfg, registry, append(opts, tenure.WithLogger(stderrLog()))...)
}

// stderrLog says on standard error what an operator would want to know.
func stderrLog() *zap.Logger {
	enc := zap.NewDevelopmentEncoderConfig()
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), zapcore.Lock(os.Stderr), zap.WarnLevel))
}

// stop stops a node within its time.
func stop(n *tenure.Node, cfg config.Config) error {
	ctx, cancel := context.WithTimeout(context.Background(), tenure.StopTimeout(cfg))
	defer cancel()
	return n.Stop(ctx)
}
