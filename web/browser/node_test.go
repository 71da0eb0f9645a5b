package browser

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.yaml.in/yaml/v4"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web"
)

// nodeEnv has this test binary be a node of the configuration that it names.
const nodeEnv = "TENURE_BROWSER_NODE"

// invoice writes into its tenant's schema, as most jobs do.
type invoice struct {
	Number int `json:"number"`
}

func (invoice) Kind() string { return "invoice.send" }

// report takes its time, and says how far it is.
type report struct {
	Pages int `json:"pages"`
}

func (report) Kind() string { return "report.make" }

// payment fails for as long as there is an outage in its tenant's schema.
type payment struct {
	Card string `json:"card"`
}

func (payment) Kind() string { return "payment.charge" }

func register() *job.Registry {
	r := job.NewRegistry()
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[invoice]) error {
		_, err := tx.Exec(ctx, "INSERT INTO sent (job_id) VALUES ($1)", int64(j.ID))
		return err
	})
	job.Handle(r, func(ctx context.Context, j *job.Job[report]) error {
		for page := range j.Args.Pages {
			job.SetProgress(ctx, int64(page), int64(j.Args.Pages), "written")
			select {
			case <-time.After(20 * time.Millisecond): // the work
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[payment]) error {
		var outage bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM outage)").Scan(&outage); err != nil || !outage {
			return err
		}
		return job.Discard(fmt.Errorf("bank refused card %q: 503 Service Unavailable", j.Args.Card))
	})
	return r
}

// runNode is the process of a node, with a dashboard. It ends with its standard input, which is its
// parent's.
func runNode(path string) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	node, err := tenure.New(cfg, register(), tenure.WithVersion("1.0.0"), tenure.WithHandler(func(n *tenure.Node) http.Handler {
		pages, err := web.Handler(n.Client(), web.Settings{})
		if err != nil {
			panic(err) // there are no settings that could be wrong
		}
		return pages
	}))
	if err != nil {
		return err
	}
	return node.Run(ctx)
}

func TestMain(m *testing.M) {
	if path := os.Getenv(nodeEnv); path != "" {
		if err := runNode(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// process is a node that runs.
type process struct {
	name, address string
	cmd           *exec.Cmd
	ended         chan struct{}
}

// cluster is some nodes, the databases that they work on, and a client.
type cluster struct {
	dir    string
	server *devpg.Server
	cfg    config.Config
	db     map[string]*pgxpool.Pool
	nodes  []*process
	client *tenure.Client
	op     *operate.Operator
}

// homes is which tenants live where.
var homes = map[string][]tenancy.ID{"eu": {"acme", "globex"}, "us": {"initech", "umbrella"}}

func startCluster(ctx context.Context, dir string) (c *cluster, err error) {
	c = &cluster{dir: dir, cfg: config.Default(), db: map[string]*pgxpool.Pool{}}
	if c.server, err = devpg.Start(ctx, devpg.Options{}); err != nil {
		return nil, err
	}
	c.cfg.Node.Name, c.cfg.Node.Listen = "test", "off"
	c.cfg.Pools, c.cfg.Tenants.Static = map[string]routing.PoolConfig{}, map[tenancy.ID]routing.TenantConfig{}
	for pool, tenants := range homes {
		if err := c.server.CreateDatabase(ctx, pool); err != nil {
			return nil, err
		}
		c.cfg.Pools[pool] = routing.PoolConfig{DSN: c.server.DSN(pool), MaxConns: 16}
		if c.db[pool], err = pgxpool.New(ctx, c.server.DSN(pool)); err != nil {
			return nil, err
		}
		for _, id := range tenants {
			c.cfg.Tenants.Static[id] = routing.TenantConfig{Pool: pool}
			_, err := c.db[pool].Exec(ctx, fmt.Sprintf("CREATE SCHEMA %[1]s; CREATE TABLE %[1]s.sent (job_id bigint NOT NULL); CREATE TABLE %[1]s.outage (since timestamptz)", id))
			if err != nil {
				return nil, err
			}
		}
	}
	if _, err := operate.Migrate(ctx, c.cfg); err != nil {
		return nil, err
	}
	ports := make([]int, 6)
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	g := membership.DefaultConfig()
	g.Profile, g.Label = "local", "browser"
	for _, port := range ports[:3] {
		g.Join = append(g.Join, fmt.Sprintf("127.0.0.1:%d", port))
	}
	for i := range 3 {
		if err := c.startNode(fmt.Sprintf("node-%d", i+1), g, ports[i], ports[3+i]); err != nil {
			return nil, err
		}
	}
	own := c.cfg
	g.Bind = "127.0.0.1:0"
	own.Cluster = &g
	if c.client, err = tenure.NewClient(own, tenure.WithKinds(register())); err != nil {
		return nil, err
	}
	c.op = c.client.Operator()
	return c, c.client.Start(ctx)
}

// freePort is one that nobody listens on just now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (c *cluster) startNode(name string, g membership.Config, gossip, listen int) error {
	type section = map[string]any
	pools, static := section{}, section{}
	for pool, p := range c.cfg.Pools {
		pools[pool] = section{"dsn": p.DSN, "max_conns": p.MaxConns}
	}
	for id, t := range c.cfg.Tenants.Static {
		static[string(id)] = t.Pool
	}
	p := &process{name: name, address: fmt.Sprintf("127.0.0.1:%d", listen), ended: make(chan struct{})}
	text, err := yaml.Marshal(section{
		"node":    section{"name": name, "listen": p.address},
		"cluster": section{"bind": fmt.Sprintf("127.0.0.1:%d", gossip), "join": g.Join, "label": g.Label, "profile": g.Profile},
		"pools":   pools, "tenants": section{"static": static},
		"acquire": section{"lock": section{"ttl": "2s", "renew_every": "400ms"}, "session": section{"ttl": "3s", "heartbeat_every": "500ms"}},
	})
	if err != nil {
		return err
	}
	path := filepath.Join(c.dir, name+".yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), nodeEnv+"="+path)
	p.cmd.Stderr = os.Stderr
	if _, err := p.cmd.StdinPipe(); err != nil { // closes with this process, however it ends
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = p.cmd.Wait() // it is killed
		close(p.ended)
	}()
	c.nodes = append(c.nodes, p)
	return nil
}

// kill ends a node as a power cut would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it has ended already
	<-p.ended
}

func (p *process) runs() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (c *cluster) stop(ctx context.Context) {
	for _, p := range c.nodes {
		p.kill()
	}
	if c.client != nil {
		_ = c.client.Stop(ctx)
	}
	for _, db := range c.db {
		db.Close()
	}
	_ = c.server.Stop(ctx)
}

// traffic enqueues some jobs for each tenant, every tenth of a second, until ctx ends.
func (c *cluster) traffic(ctx context.Context) {
	for n, tick := 0, time.Tick(100*time.Millisecond); ; n++ {
		for _, tenants := range homes {
			for _, id := range tenants {
				_, _ = c.client.Enqueue(tenancy.For(ctx, id), invoice{n}) // a pool without a holder takes jobs, too
				if n%10 == 0 {
					_, _ = c.client.Enqueue(tenancy.For(ctx, id), report{Pages: 10 + n%30}, tenure.OnQueue("reports"))
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}
