package bed

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Bed is Postgres of its own with pools and tenants in it.
type Bed struct {
	Servers []*devpg.Server // pool i is on server i modulo servers
	owner   string          // of the databases, and who connects to them; "": the superuser
	Config  config.Config
	Pools   []string
	Tenants []tenancy.ID // tenant i lives in pool i modulo pools
}

// Start starts Postgres and makes pools with tenants spread over them.
func Start(ctx context.Context, o devpg.Options, pools, tenants int) (*Bed, error) {
	server, err := devpg.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return NewOn(ctx, []*devpg.Server{server}, "", pools, tenants)
}

// NewOn lays it out on servers that run, which are the bed's from then on.
func NewOn(ctx context.Context, servers []*devpg.Server, owner string, pools, tenants int) (*Bed, error) {
	b := NewEmpty(servers...)
	b.owner = owner
	b.Config.Node.Name = "loadtest"
	b.Config.Tenants.Static = map[tenancy.ID]routing.TenantConfig{}
	if err := b.fill(ctx, pools, tenants); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// NewEmpty has no pools.
func NewEmpty(servers ...*devpg.Server) *Bed {
	b := &Bed{Servers: servers, Config: config.Default()}
	b.Config.Node.Listen = "off"
	b.Config.Pools = map[string]routing.PoolConfig{}
	return b
}

func (b *Bed) fill(ctx context.Context, pools, tenants int) error {
	for p := range pools {
		name := fmt.Sprintf("pool-%d", p+1)
		server := b.Servers[b.ServerOf(name)]
		if err := server.CreateDatabase(ctx, name); err != nil {
			return err
		}
		b.Pools = append(b.Pools, name)
		dsn := server.DSN(name)
		if b.owner != "" {
			if err := ExecOn(ctx, dsn, fmt.Sprintf("ALTER DATABASE %q OWNER TO %q", name, b.owner)); err != nil {
				return err
			}
			dsn = AsUser(dsn, b.owner)
		}
		b.Config.Pools[name] = routing.PoolConfig{DSN: dsn, MaxConns: 24}
	}
	schemas := map[string][]string{} // by pool: statements
	for i := range tenants {
		id := tenancy.ID(fmt.Sprintf("tenant_%04d", i+1))
		pool := fmt.Sprintf("pool-%d", i%pools+1)
		b.Tenants = append(b.Tenants, id)
		b.Config.Tenants.Static[id] = routing.TenantConfig{Pool: pool}
		schemas[pool] = append(schemas[pool], SchemaSQL(id))
	}
	if _, err := operate.Migrate(ctx, b.Config); err != nil {
		return err
	}
	const atOnce = 500 // more than some thousands in one transaction would be too many locks
	for pool, all := range schemas {
		for some := range slices.Chunk(all, atOnce) {
			if err := b.Exec(ctx, pool, strings.Join(some, " ")); err != nil {
				return err
			}
		}
	}
	return nil
}

// ScaleTTLs shortens the times to live of locks and sessions, and how often they are renewed; 1 is
// as they are by default.
func (b *Bed) ScaleTTLs(scale float64) {
	a := &b.Config.Acquire
	for _, d := range []*time.Duration{&a.Lock.TTL, &a.Lock.RenewEvery, &a.Session.TTL, &a.Session.HeartbeatEvery} {
		*d = time.Duration(float64(*d) * scale)
	}
}

// SchemaSQL makes a tenant's schema, for the effects of its jobs.
func SchemaSQL(id tenancy.ID) string {
	return fmt.Sprintf("CREATE SCHEMA %s; CREATE TABLE %s.effect (job_id bigint NOT NULL, turn integer, member text, at timestamptz NOT NULL DEFAULT clock_timestamp());", id, id)
}

// ServerOf is the number of the server that a pool is on.
func (b *Bed) ServerOf(pool string) int {
	var n int
	_, _ = fmt.Sscanf(pool, "pool-%d", &n) // it has that form: see fill
	return (n - 1) % len(b.Servers)
}

// Exec runs statements in a pool's database.
func (b *Bed) Exec(ctx context.Context, pool, sql string) error {
	return ExecOn(ctx, b.Config.Pools[pool].DSN, sql)
}

// ExecAll runs statements in every pool's database.
func (b *Bed) ExecAll(ctx context.Context, sql string) error {
	for _, pool := range b.Pools {
		if err := b.Exec(ctx, pool, sql); err != nil {
			return err
		}
	}
	return nil
}

// ExecOn runs statements in a database.
func ExecOn(ctx context.Context, dsn, sql string) error {
	conn, err := ConnectTo(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// AsUser is a server's DSN for another user.
func AsUser(dsn, user string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		panic(err) // the server made it
	}
	u.User = url.User(user)
	return u.String()
}

// Connect opens a connection of the scenario's own to a pool's database.
func (b *Bed) Connect(ctx context.Context, pool string) (*pgx.Conn, error) {
	return ConnectTo(ctx, b.Config.Pools[pool].DSN)
}

// ConnectTo waits for a connection if there are none left.
func ConnectTo(ctx context.Context, dsn string) (conn *pgx.Conn, err error) {
	err = wait.Until(ctx, time.Minute, "no connection came free", func() (bool, error) {
		conn, err = pgx.Connect(ctx, dsn)
		var full *pgconn.PgError
		if errors.As(err, &full) && full.Code == "53300" {
			return false, wait.For(ctx, 100*time.Millisecond)
		}
		return err == nil, err
	})
	return conn, err
}

// EnqueueChunk is how many jobs go into one EnqueueMany.
const EnqueueChunk = 20_000

// Enqueue makes a backlog of jobs that tenants have in equal shares, the n-th with these options.
func (b *Bed) Enqueue(ctx context.Context, tenants []tenancy.ID, jobs int, args func(n int) job.Args, options ...func(n int) tenure.Option) error {
	c, err := tenure.NewClient(b.Config)
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	defer c.Stop(ctx)
	return EnqueueBy(ctx, c, tenants, jobs, args, options...)
}

// EnqueueBy has a client do it.
func EnqueueBy(ctx context.Context, c *tenure.Client, tenants []tenancy.ID, jobs int, args func(n int) job.Args, options ...func(n int) tenure.Option) error {
	for from := 0; from < jobs; from += EnqueueChunk {
		entries := make([]tenure.Entry, 0, EnqueueChunk)
		for i := from; i < min(from+EnqueueChunk, jobs); i++ {
			e := tenure.Entry{Tenant: tenants[i%len(tenants)], Args: args(i)}
			for _, o := range options {
				e.Options = append(e.Options, o(i))
			}
			entries = append(entries, e)
		}
		if _, err := c.EnqueueMany(ctx, entries); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bed) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, s := range b.Servers {
		if err := s.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "loadtest: stop Postgres:", err)
		}
	}
}

// RunNode starts a node in this process that runs registry's handlers. What is returned
// stops it, and may be called again.
func (b *Bed) RunNode(ctx context.Context, registry *job.Registry, opts ...tenure.NodeOption) (n *tenure.Node, end func() error, err error) {
	n, err = tenure.New(b.Config, registry, append(opts, tenure.WithLogger(Log(os.Stderr, zap.WarnLevel)))...)
	if err != nil {
		return nil, nil, err
	}
	if err := n.Start(ctx); err != nil {
		return nil, nil, err
	}
	return n, sync.OnceValue(func() error { return StopNode(n, b.Config) }), nil
}

// LogTime is how a log tells the time.
const LogTime = "2006-01-02T15:04:05.000Z07:00"

// Log writes what is of a level or above.
func Log(w zapcore.WriteSyncer, level zapcore.Level) *zap.Logger {
	enc := zap.NewDevelopmentEncoderConfig()
	enc.EncodeTime = zapcore.TimeEncoderOfLayout(LogTime)
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), zapcore.Lock(w), level))
}

// StopNode stops a node within its time.
func StopNode(n *tenure.Node, cfg config.Config) error {
	ctx, cancel := context.WithTimeout(context.Background(), tenure.StopTimeout(cfg))
	defer cancel()
	return n.Stop(ctx)
}

// ClonePools makes many pools from one, as Postgres copies a database in a fraction of the
// time that its migration takes, and does for them what `tenure migrate` does for a new pool:
// a number and a name, and the number in the job ids.
func (b *Bed) ClonePools(ctx context.Context, pools int) error {
	const template = "template"
	server := b.Servers[0]
	if err := server.CreateDatabase(ctx, template); err != nil {
		return err
	}
	b.Config.Pools = map[string]routing.PoolConfig{template: {DSN: server.DSN(template)}}
	if _, err := operate.Migrate(ctx, b.Config); err != nil {
		return err
	}
	setSync := func(is string) error {
		for _, sql := range []string{"ALTER SYSTEM SET fsync = " + is, "SELECT pg_reload_conf()"} {
			if err := ExecOn(ctx, server.DSN(template), sql); err != nil {
				return err
			}
		}
		return nil
	}
	if err := setSync("off"); err != nil { // a copy is 8 MB, in the WAL, too
		return err
	}
	b.Config.Pools = map[string]routing.PoolConfig{}
	for p := range pools {
		name := fmt.Sprintf("pool-%d", p+1)
		b.Pools = append(b.Pools, name)
		b.Config.Pools[name] = routing.PoolConfig{DSN: server.DSN(name)}
		if err := server.CloneDatabase(ctx, template, name); err != nil {
			return err
		}
		const firstOf = 47 // bits below the pool's number
		err := b.Exec(ctx, name, fmt.Sprintf("UPDATE tenure.pool SET number = %d, name = '%s'; SELECT setval('tenure.job_id', %d, false), tenure.begin_incarnation(false)",
			p+1, name, int64(p+1)<<firstOf+1))
		if err != nil {
			return err
		}
	}
	return setSync("DEFAULT")
}
