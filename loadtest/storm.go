package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
)

type stormOptions struct {
	nodes, pools, room, outsider int
	told, perNode, maxConns      int
	steady, fault                time.Duration
	every, took                  time.Duration
	keep                         string
}

type stormResult struct {
	Scenario    string        `json:"scenario"`
	Nodes       int           `json:"nodes"`
	Pools       int           `json:"pools"`
	Server      int           `json:"max_connections"`
	Told        int           `json:"connections_nodes"`
	PerNode     int           `json:"connections_per_node"`
	MaxConns    int           `json:"max_conns"`
	Budget      int           `json:"budget"`           // what all processes may open by that, or by max_conns
	Connections int           `json:"connections"`      // the most that were open at a time
	Locks       int           `json:"lock_connections"` // those for locks and sessions, which connections.per_node does not bound
	Opened      float64       `json:"opened_per_second"`
	Steady      stormTries    `json:"steady"`
	Crowded     stormTries    `json:"crowded_out"` // while an outsider has nearly all connections
	Down        stormTries    `json:"down"`        // while the server does not run
	Recovered   stormRecovery `json:"recovered_from_crowd"`
	Back        stormRecovery `json:"recovered_from_down"`
	Enqueued    int           `json:"enqueued"`
	Unknown     int           `json:"unknown"` // calls of Enqueue that failed
	Finished    int           `json:"finished"`
	Dead        int           `json:"dead"`
	Lost        int           `json:"lost"`
	Doubled     int           `json:"doubled"`
}

// stormTries counts connections that nodes asked the server for in vain.
type stormTries struct {
	PerSecond   float64 `json:"per_second"`    // of all nodes and pools
	PerPair     float64 `json:"per_pair"`      // and second, of a node and a pool, on average
	WorstPair   float64 `json:"worst_pair"`    // and second, of the node and the pool with most
	WorstSecond int     `json:"worst_second"`  // the most of a node and a pool within a second
	Locks       float64 `json:"locks"`         // share of those for locks and sessions; 0: not known
	Client      float64 `json:"client_second"` // of the client that enqueues, all pools together
}

// stormRecovery is counted from the end of a fault.
type stormRecovery struct {
	First   float64 `json:"first_seconds"`  // until a job of every pool has finished
	Behind  float64 `json:"behind_seconds"` // until all jobs have finished that were enqueued before
	PerPair float64 `json:"per_pair"`       // connections that the server refused in the half minute after, as in stormTries
}

func newStorm() *cobra.Command {
	var o stormOptions
	c := &cobra.Command{
		Use: "storm", Short: "Take a server's connections away from a cluster with many pools on it, then the server, and count how often it tries",
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&o.nodes, "nodes", 5, "node processes")
	c.Flags().IntVar(&o.pools, "pools", 20, "databases, all on one server")
	c.Flags().IntVar(&o.room, "max-connections", 100, "the server's")
	c.Flags().IntVar(&o.outsider, "outsider", 90, "how many of them somebody else takes")
	c.Flags().IntVar(&o.told, "told", 0, "connections.nodes (0: as many processes as there are, the client included)")
	c.Flags().IntVar(&o.perNode, "per-node", 0, "connections.per_node (0: the most that the check at the start allows)")
	c.Flags().IntVar(&o.maxConns, "max-conns", 20, "max_conns of every pool; that is its default")
	c.Flags().DurationVar(&o.steady, "steady", 10*time.Second, "how long to measure without a fault")
	c.Flags().DurationVar(&o.fault, "fault", 20*time.Second, "how long each fault lasts")
	c.Flags().DurationVar(&o.every, "every", time.Second, "how often a job is enqueued in each pool")
	c.Flags().DurationVar(&o.took, "took", 20*time.Millisecond, "how long each takes")
	c.Flags().StringVar(&o.keep, "keep", "", "keep the nodes' logs in this folder")
	return scenario(c, func(ctx context.Context, _ []string) (stormResult, error) { return storm(ctx, o) })
}

func (r stormResult) fault() error { return lost(int64(r.Lost+r.Dead), r.Doubled) }

// reservedSlots are those of superusers, by Postgres' default.
const reservedSlots = 3

// stormOwner owns the databases. Every process has a role of its own in it, so that the
// server's log tells who asked; none is a superuser, who would have slots of his own.
const stormOwner, stormClient = "app", "client"

func storm(ctx context.Context, o stormOptions) (r stormResult, err error) {
	if o.nodes < 1 || o.pools < 1 || o.steady < time.Second || o.fault < time.Second || o.every <= 0 || o.outsider >= o.room-reservedSlots {
		return r, errors.New("nodes, pools and every must be more than 0, steady and fault a second at least, and the outsider must leave some connections")
	}
	if o.told == 0 {
		o.told = o.nodes + 1
	}
	locks := o.pools * min(o.told, 3)
	if o.perNode == 0 {
		o.perNode = (o.room - reservedSlots - locks) / o.told
	}
	r = stormResult{Scenario: "storm", Nodes: o.nodes, Pools: o.pools, Server: o.room, Told: o.told, PerNode: o.perNode, MaxConns: o.maxConns}
	r.Budget = min(o.perNode*o.told+locks, o.maxConns*o.pools*o.told)
	server, err := devpg.Start(ctx, devpg.Options{Durable: true, InMemory: true, MaxConnections: o.room, Settings: map[string]string{
		"logging_collector": "on", "log_directory": "log", "log_filename": stormLog, "log_rotation_age": "0", "log_rotation_size": "0",
		"log_connections": "on", "log_line_prefix": "%n %u@%d ",
	}})
	if err != nil {
		return r, err
	}
	roles := []string{stormClient}
	for i := range o.nodes {
		roles = append(roles, fmt.Sprintf("node-%d", i+1))
	}
	sql := fmt.Sprintf("CREATE ROLE %q LOGIN;", stormOwner)
	for _, role := range roles {
		sql += fmt.Sprintf("CREATE ROLE %q LOGIN IN ROLE %q; ALTER ROLE %q SET role = %q;", role, stormOwner, role, stormOwner)
	}
	if err := execOn(ctx, server.DSN("postgres"), sql); err != nil {
		return r, errors.Join(err, server.Stop(ctx))
	}
	b, err := newBedOn(ctx, []*devpg.Server{server}, stormOwner, o.pools, 2*o.pools)
	if err != nil {
		return r, err
	}
	defer b.close()
	b.cfg.Connections.Nodes, b.cfg.Connections.PerNode = o.told, o.perNode
	f, err := newFleet(b.cfg, o.nodes, "lan", o.keep)
	if err != nil {
		return r, err
	}
	defer f.close()
	f.silent = true
	as := func(role string) {
		b.cfg.Pools = maps.Clone(b.cfg.Pools)
		for name, p := range b.cfg.Pools {
			p.DSN, p.MaxConns = asUser(p.DSN, role), o.maxConns
			b.cfg.Pools[name] = p
		}
	}
	for i, n := range f.nodes {
		as(roles[i+1])
		n.cfg.Pools = b.cfg.Pools
	}
	if err := f.start(ctx); err != nil {
		return r, err
	}
	as(stormClient)
	client, err := f.client(ctx, b.cfg)
	if err != nil {
		return r, err
	}
	defer client.Stop(context.WithoutCancel(ctx))
	as("postgres") // for whoever counts

	l := b.load(client, o.every, func(n int) job.Args {
		if n%2 == 0 {
			return plainWork{Took: o.took}
		}
		return txWork{Took: o.took}
	})
	l.start()
	w := &weather{bed: b, server: server, nodes: o.nodes, fault: o.fault, outsider: o.outsider}
	err = w.run(ctx, o.steady)
	l.stop()
	if err == nil {
		err = b.untilDone(ctx)
	}
	if err != nil {
		return r, errors.Join(err, l.last)
	}
	if err := w.readLog(ctx); err != nil {
		return r, err
	}
	r.Connections, r.Locks = w.most, w.locks
	opened := 0
	for _, t := range w.opened {
		if w.steady.has(t.at) {
			opened++
		}
	}
	r.Opened = tenths(float64(opened) / w.steady.seconds())
	r.Steady, r.Crowded, r.Down = w.tries(w.steady), w.tries(w.crowded), w.tries(w.down)
	if r.Recovered, err = w.recovery(ctx, w.left); err != nil {
		return r, err
	}
	if r.Back, err = w.recovery(ctx, w.back); err != nil {
		return r, err
	}
	p, err := l.prove(ctx)
	r.Enqueued, r.Unknown, r.Finished, r.Dead, r.Lost, r.Doubled = l.enqueued(), l.unknown, p.finished, p.dead, p.lost, p.doubled
	return r, err
}

const stormLog = "storm.log"

// untilDone waits until no job is left that may still run. It needs no connection of the
// client's, of which there may be none.
func (b *bed) untilDone(ctx context.Context) error {
	for _, pool := range b.pools {
		conn, err := b.connect(ctx, pool)
		if err != nil {
			return err
		}
		err = until(ctx, 6*time.Minute, "jobs were left in "+pool, func() (bool, error) {
			var left int
			err := conn.QueryRow(ctx, "SELECT (SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.timer_job)").Scan(&left)
			return left == 0, errors.Join(err, wait(ctx, 100*time.Millisecond))
		})
		if err := errors.Join(err, conn.Close(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// weather makes the faults, and sees what the processes ask the server for.
type weather struct {
	bed      *bed
	server   *devpg.Server
	nodes    int
	fault    time.Duration
	outsider int

	conn *pgx.Conn // a superuser's; kept, for there may be no other to be had

	steady, crowded, left, down, back window

	most    int   // connections that were open at a time
	locks   int   // those of locks and sessions
	opened  []try // connections that the server let in
	refused []try // those that it did not
}

// try is one that a process made to connect.
type try struct {
	at         time.Time
	role, pool string
	purpose    string // as far as it is known: "tenure lock", "tenure jobs", …
}

// calmAfter is how long the cluster has between two faults.
const calmAfter = 30 * time.Second

func (w *weather) run(ctx context.Context, steady time.Duration) error {
	if err := errors.Join(w.connect(ctx), wait(ctx, 2*warmUp)); err != nil {
		return err
	}
	defer func() { _ = w.conn.Close(context.WithoutCancel(ctx)) }() // as the last
	say := func(what string) { fmt.Fprintln(os.Stderr, what) }
	var err error
	step := func(what string, d time.Duration) (in window) {
		if err == nil {
			say(what)
			in, err = w.watch(ctx, d)
		}
		return in
	}
	w.steady = step("steady", steady)
	if err != nil {
		return err
	}
	leave, err := w.crowd(ctx)
	w.crowded = step("an outsider has the connections", w.fault)
	leave()
	w.crowded.to = time.Now()
	w.left = step("it has left", calmAfter)
	if err != nil {
		return err
	}
	back, err := w.stop(ctx)
	if err != nil {
		return err
	}
	say("the server is down")
	w.down.from = time.Now()
	err = wait(ctx, w.fault)
	w.down.to = time.Now()
	if err := errors.Join(err, back(ctx)); err != nil {
		return err
	}
	if err := w.connect(ctx); err != nil {
		return err
	}
	w.back = step("it is back", calmAfter)
	return err
}

func (w *weather) connect(ctx context.Context) (err error) {
	w.conn, err = connectTo(ctx, w.server.DSN("postgres"))
	return err
}

// watch counts connections for a while.
func (w *weather) watch(ctx context.Context, d time.Duration) (in window, err error) {
	in.from = time.Now()
	var most [2]int
	defer func() {
		in.to = time.Now()
		fmt.Fprintf(os.Stderr, "at most %d connections, and %d for locks and sessions\n", most[0], most[1])
	}()
	for time.Since(in.from) < d {
		var all, locks int
		err := w.conn.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE application_name = 'tenure lock')
			FROM pg_stat_activity WHERE backend_type = 'client backend' AND usename <> 'postgres'`).Scan(&all, &locks)
		if err != nil {
			return in, err
		}
		w.most, w.locks = max(w.most, all), max(w.locks, locks)
		most[0], most[1] = max(most[0], all), max(most[1], locks)
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return in, err
		}
	}
	return in, nil
}

// crowd takes connections, and the cluster's away until it has as many as it wants. What is
// returned gives them back.
func (w *weather) crowd(ctx context.Context) (leave func(), err error) {
	var mu sync.Mutex
	var mine []*pgx.Conn
	leave = func() {
		for _, c := range mine {
			_ = c.Close(context.WithoutCancel(ctx)) // it is gone in any case
		}
	}
	err = until(ctx, 30*time.Second, "the outsider did not get its connections", func() (bool, error) {
		if _, err := w.conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND usename <> 'postgres'"); err != nil {
			return false, err
		}
		var group sync.WaitGroup
		for range w.outsider - len(mine) {
			group.Go(func() {
				c, err := pgx.Connect(ctx, w.server.DSN("postgres"))
				mu.Lock()
				defer mu.Unlock()
				if err == nil { // else it tries again
					mine = append(mine, c)
				}
			})
		}
		group.Wait()
		return len(mine) == w.outsider, nil
	})
	return leave, err
}

// stop ends the server. In its place something listens that hears who calls, and hangs up.
func (w *weather) stop(ctx context.Context) (back func(context.Context) error, err error) {
	c, err := pgx.ParseConfig(w.server.DSN("postgres"))
	if err != nil {
		return nil, err
	}
	if err := w.server.Crash(ctx); err != nil {
		return nil, err
	}
	path := fmt.Sprintf("%s/.s.PGSQL.%d", c.Host, c.Port)
	_ = os.Remove(path) // Postgres has done that, if it could
	in, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := in.Accept()
			if err != nil {
				return
			}
			if t, ok := readStartup(c); ok {
				w.refused = append(w.refused, t)
			}
			_ = c.Close()
		}
	})
	return func(ctx context.Context) error {
		_ = in.Close()
		group.Wait()
		_ = os.Remove(path)
		return w.server.Resume(ctx)
	}, nil
}

// readStartup reads the first thing that a client says: a length, a version, and settings.
func readStartup(c net.Conn) (t try, ok bool) {
	t.at = time.Now()
	const mostBytes = 10_000
	var head [8]byte
	if c.SetDeadline(time.Now().Add(time.Second)) != nil {
		return t, false
	}
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return t, false
	}
	n := int(binary.BigEndian.Uint32(head[:])) - len(head)
	if version := binary.BigEndian.Uint32(head[4:]); version>>16 != 3 || n < 0 || n > mostBytes {
		return t, false // it cancels something
	}
	rest := make([]byte, n)
	if _, err := io.ReadFull(c, rest); err != nil {
		return t, false
	}
	words := strings.Split(string(rest), "\x00")
	for i := 0; i+1 < len(words); i += 2 {
		switch words[i] {
		case "user":
			t.role = words[i+1]
		case "database":
			t.pool = words[i+1]
		case "application_name":
			t.purpose = words[i+1]
		}
	}
	return t, true
}

// readLog reads from the server's log whom it let in and whom not.
func (w *weather) readLog(ctx context.Context) error {
	conn, err := connectTo(ctx, w.server.DSN("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var text string
	if err := conn.QueryRow(ctx, "SELECT pg_read_file('log/"+stormLog+"')").Scan(&text); err != nil {
		return err
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		stamp, rest, _ := strings.Cut(lines.Text(), " ")
		who, what, _ := strings.Cut(rest, " ")
		role, pool, named := strings.Cut(who, "@")
		seconds, err := strconv.ParseFloat(stamp, 64)
		if err != nil || !named || role == "postgres" {
			continue
		}
		t := try{at: time.UnixMilli(int64(1000 * seconds)), role: role, pool: pool}
		switch {
		case strings.Contains(what, "too many c") || strings.Contains(what, "remaining connection slots"):
			w.refused = append(w.refused, t)
		case strings.Contains(what, "connection authorized"):
			w.opened = append(w.opened, t)
		}
	}
	return lines.Err()
}

// tries counts what the server refused in a time.
func (w *weather) tries(in window) (out stormTries) {
	type pair struct{ role, pool string }
	pairs := map[pair][]time.Time{}
	clients, locks := 0, 0
	for _, t := range w.refused {
		switch {
		case !in.has(t.at):
		case t.role == stormClient:
			clients++
		default:
			k := pair{t.role, t.pool}
			pairs[k] = append(pairs[k], t.at)
			if t.purpose == "tenure lock" {
				locks++
			}
		}
	}
	all, worst := 0, 0
	for _, at := range pairs {
		slices.SortFunc(at, time.Time.Compare)
		all, worst = all+len(at), max(worst, len(at))
		for i, from := range at {
			n := 0
			for n < len(at)-i && at[i+n].Sub(from) < time.Second {
				n++
			}
			out.WorstSecond = max(out.WorstSecond, n)
		}
	}
	round := func(n int, of float64) float64 { return math.Round(100*float64(n)/of) / 100 }
	out.PerSecond, out.Client = round(all, in.seconds()), round(clients, in.seconds())
	out.Locks = share(float64(locks), float64(all))
	out.WorstPair = round(worst, in.seconds())
	out.PerPair = round(all, in.seconds()*float64(len(w.bed.pools)*w.nodes))
	return out
}

// recovery looks at the jobs that finished after a fault.
func (w *weather) recovery(ctx context.Context, after window) (out stormRecovery, err error) {
	end := after.from
	out.PerPair = w.tries(after).PerPair
	for _, pool := range w.bed.pools {
		jobs, err := w.bed.finished(ctx, pool)
		if err != nil {
			return out, err
		}
		first, last := time.Duration(math.MaxInt64), time.Duration(0)
		for _, j := range jobs {
			late := j.finished.Sub(end)
			if late >= 0 {
				first = min(first, late)
			}
			if j.created.Before(end) {
				last = max(last, late)
			}
		}
		out.First, out.Behind = max(out.First, tenths(first.Seconds())), max(out.Behind, tenths(last.Seconds()))
	}
	return out, nil
}
