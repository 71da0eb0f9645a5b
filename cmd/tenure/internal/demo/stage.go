package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.yaml.in/yaml/v4"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// stage is the demo's cluster: Postgres, its databases, the node processes, and
// this process' client.
type stage struct {
	dir       string
	server    *devpg.Server // nil with --dsn
	databases *devpg.Databases
	created   []string // databases to drop again
	cfg       config.Config
	tenants   []tenancy.ID // tenant i lives in pool i modulo pools
	pools     []string
	db        map[string]*pgxpool.Pool
	client    *tenure.Client
	seeds     []string // gossip addresses of the nodes
	took      time.Duration
	ports     []int      // of the nodes' gossip
	nodes     []*process // all of them from the start on; one that is started again takes its own place
}

// process is a node process.
type process struct {
	name  string
	port  int // of its gossip
	cmd   *exec.Cmd
	stdin io.Closer
	log   string
	done  chan struct{} // closed when it has ended
}

func newStage(ctx context.Context, o options) (_ *stage, err error) {
	began := time.Now()
	s := &stage{db: map[string]*pgxpool.Pool{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "tenure-demo-"); err != nil {
		return nil, err
	}
	if o.dsn != "" {
		s.databases, err = devpg.At(o.dsn)
	} else if s.server, err = devpg.Start(ctx, devpg.Options{}); err == nil {
		s.databases = s.server.Databases
	}
	if err != nil {
		return nil, err
	}
	if err := s.layOut(ctx, o); err != nil {
		return nil, err
	}
	s.took = time.Since(began)
	return s, nil
}

// layOut makes the databases, the tenants' schemas and the ledgers.
func (s *stage) layOut(ctx context.Context, o options) error {
	s.cfg = config.Default()
	s.cfg.Connections.Nodes = o.nodes
	s.cfg.Pools = map[string]routing.PoolConfig{}
	s.cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{}
	s.cfg.Node.Name = "demo"
	s.cfg.Node.Listen = "off"
	unique := fmt.Sprintf("tenure_demo_%d", os.Getpid())
	for i := range o.pools {
		pool, database := fmt.Sprintf("pool-%d", i+1), fmt.Sprintf("%s_%d", unique, i+1)
		if err := s.databases.CreateDatabase(ctx, database); err != nil {
			return err
		}
		s.created = append(s.created, database)
		dsn := s.databases.DSN(database)
		s.pools = append(s.pools, pool)
		s.cfg.Pools[pool] = routing.PoolConfig{DSN: dsn, MaxConns: 16}
		db, err := pgxpool.New(ctx, dsn)
		if err != nil {
			return err
		}
		s.db[pool] = db
	}
	for i := range o.tenants {
		id := tenancy.ID(fmt.Sprintf("tenant_%02d", i+1))
		pool := s.pools[i%o.pools]
		s.tenants = append(s.tenants, id)
		s.cfg.Tenants.Static[id] = routing.TenantConfig{Pool: pool}
		if _, err := s.db[pool].Exec(ctx, tenantSQL(string(id))); err != nil {
			return fmt.Errorf("lay out tenant %s: %w", id, err)
		}
	}
	_, err := operate.Migrate(ctx, s.cfg)
	return err
}

// tenantSQL makes a tenant's tables. The effect table has no unique index: a
// doubled effect must be seen, not refused.
func tenantSQL(id string) string {
	return fmt.Sprintf(`
		CREATE SCHEMA %[1]s;
		CREATE TABLE %[1]s.effect (job_id bigint NOT NULL, kind text NOT NULL, node text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
		CREATE TABLE %[1]s.invoice (id integer PRIMARY KEY, sent_at timestamptz, times_sent integer NOT NULL DEFAULT 0)`, id)
}

// startClient starts this process' client, which finds the nodes once they are there.
func (s *stage) startClient(ctx context.Context, nodes int) (err error) {
	if s.ports, err = freePorts(nodes); err != nil {
		return err
	}
	for _, port := range s.ports {
		s.seeds = append(s.seeds, fmt.Sprintf("127.0.0.1:%d", port))
	}
	cfg := s.cfg
	cfg.Cluster = gossip(0, s.seeds)
	if s.client, err = tenure.NewClient(cfg); err != nil {
		return err
	}
	return s.client.Start(ctx)
}

// startNodes starts the node processes.
func (s *stage) startNodes(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for i, port := range s.ports {
		if err := s.startNode(ctx, self, fmt.Sprintf("node-%d", i+1), port); err != nil {
			return err
		}
	}
	return nil
}

// gossip is the cluster section on this machine's loopback.
func gossip(port int, seeds []string) *membership.Config {
	c := membership.DefaultConfig()
	c.Bind, c.Join, c.Label, c.Profile = fmt.Sprintf("127.0.0.1:%d", port), seeds, "tenure-demo", "local"
	return &c
}

// freePorts finds ports that nobody listens on, by TCP and by UDP.
func freePorts(n int) ([]int, error) {
	var ports []int
	for len(ports) < n {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer tcp.Close() // all are held until all are found
		port := tcp.Addr().(*net.TCPAddr).Port
		udp, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer udp.Close()
		ports = append(ports, port)
	}
	return ports, nil
}

func (s *stage) startNode(ctx context.Context, self, name string, port int) error {
	text, err := s.nodeFile(name, port)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, name+".yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	p := &process{name: name, port: port, log: filepath.Join(s.dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(self, nodeCommandName, path) // not bound to ctx: close stops it properly
	p.cmd.Stdout, p.cmd.Stderr = log, log
	ownGroup(p.cmd)
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is seen by anyone who looks at the log
		close(p.done)
	}()
	if i := slices.IndexFunc(s.nodes, func(before *process) bool { return before.name == name }); i >= 0 {
		s.nodes[i] = p
	} else {
		s.nodes = append(s.nodes, p)
	}
	return ctx.Err()
}

// nodeFile is a node's configuration file, as an operator would write it.
func (s *stage) nodeFile(name string, port int) ([]byte, error) {
	type section = map[string]any
	pools, static := section{}, section{}
	for pool, p := range s.cfg.Pools {
		pools[pool] = section{"dsn": p.DSN, "max_conns": p.MaxConns}
	}
	for id, t := range s.cfg.Tenants.Static {
		static[string(id)] = t.Pool
	}
	g := gossip(port, s.seeds)
	return yaml.Marshal(section{
		"node":    section{"name": name, "listen": s.cfg.Node.Listen},
		"cluster": section{"bind": g.Bind, "join": g.Join, "label": g.Label, "profile": g.Profile},
		"pools":   pools,
		"tenants": section{"static": static},
	})
}

// node returns a running node process by name.
func (s *stage) node(name string) *process {
	for _, p := range s.nodes {
		if p.name == name {
			return p
		}
	}
	return nil
}

// holderOf takes the node's name out of a member's.
func holderOf(member string) string {
	if i := strings.LastIndexByte(member, '-'); i > 0 {
		return member[:i]
	}
	return member
}

// untilHeld waits until every pool's lock is held, and says by whom.
func (s *stage) untilHeld(ctx context.Context) (string, error) {
	var held []string
	err := wait.Until(ctx, 30*time.Second, "not every pool had a holder", func() (bool, error) {
		held = nil
		for _, l := range s.client.Operator().Pools().Locks(ctx) {
			if l.Holder != "" {
				held = append(held, fmt.Sprintf("%s by %s", l.Pool, holderOf(l.Holder)))
			}
		}
		return len(held) == len(s.pools), nil
	})
	return strings.Join(held, ", "), err
}

// logTails is the end of each node's log as an error, for when something failed.
func (s *stage) logTails() error {
	var errs []error
	for _, p := range s.nodes {
		text, err := os.ReadFile(p.log)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		errs = append(errs, fmt.Errorf("%s said last:\n%s", p.name, bytes.Join(lines[max(0, len(lines)-5):], []byte("\n"))))
	}
	return errors.Join(errs...)
}

// stay keeps everything running until ctx ends or somebody presses Enter, and says where to
// look.
func (s *stage) stay(ctx context.Context, p *play, say func(string, ...any), in io.Reader) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// Under names that are short to type, whatever this program was started as.
	if err := os.Symlink(self, filepath.Join(s.dir, "tenure")); err != nil {
		return err
	}
	for _, node := range s.nodes {
		if node.runs() {
			if err := os.Symlink(node.name+".yaml", filepath.Join(s.dir, "node.yaml")); err != nil {
				return err
			}
			break
		}
	}
	say("")
	say("The cluster keeps running, with some traffic and a node that dies every minute, until you press Enter or Ctrl-C. In another terminal:")
	say("")
	dsn := filepath.Join(s.dir, "pool-1.dsn") // which is longer than a line
	if err := os.WriteFile(dsn, []byte(s.databases.DSN(s.created[0])), 0o600); err != nil {
		return err
	}
	for _, c := range []string{"cd " + s.dir, "./tenure locks", "./tenure nodes", "./tenure jobs list --state done", `psql "$(cat pool-1.dsn)"`} {
		say("  %s", c)
	}
	lively, end := context.WithCancel(ctx)
	lingered := make(chan struct{})
	go func() { s.linger(lively, p, say); close(lingered) }()
	defer func() { end(); <-lingered }()
	entered := make(chan struct{})
	go func() { // ends with the process, if nobody presses Enter
		if _, err := bufio.NewReader(in).ReadString('\n'); err == nil {
			close(entered)
		}
	}()
	select {
	case <-ctx.Done():
	case <-entered:
	}
	return nil
}

// runs tells whether it has not ended.
func (p *process) runs() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// nodeStop is how long a node may take to stop before it is killed.
const nodeStop = 20 * time.Second

// close stops the nodes, Postgres, and removes what was made.
func (s *stage) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for _, p := range s.nodes {
		_ = p.stdin.Close() // tells it to stop; it may have ended before
	}
	patience := time.After(nodeStop)
	for _, p := range s.nodes {
		select {
		case <-p.done:
		case <-patience:
			errs = append(errs, fmt.Errorf("%s did not stop within %v and was killed", p.name, nodeStop))
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	}
	if s.client != nil {
		errs = append(errs, s.client.Stop(ctx))
	}
	for _, db := range s.db {
		db.Close()
	}
	switch {
	case s.server != nil:
		errs = append(errs, s.server.Stop(ctx))
	case s.databases != nil:
		for _, name := range s.created {
			errs = append(errs, s.databases.DropDatabase(ctx, name))
		}
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
