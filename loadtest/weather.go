package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/devpg"
)

// weather makes the faults of a storm, and sees what the processes ask the server for.
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
		first, last := after.to.Sub(end), time.Duration(0) // nothing has finished there: not until then
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
