package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

// faultSchedule makes the faults of a storm, and sees what the processes ask the server for.
type faultSchedule struct {
	bed      *bed.Bed
	server   *devpg.Server
	nodes    int
	fault    time.Duration
	outsider int

	conn *pgx.Conn // a superuser's; kept, for there may be no other to be had; ends with the server

	steady, crowded, left, down, back report.Window

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

func (s *faultSchedule) run(ctx context.Context, steady time.Duration) error {
	return inTurn(ctx, s.connect, pause(2*warmUp), s.watch("steady", steady, &s.steady),
		s.crowd, s.watch("it has left", calmAfter, &s.left),
		s.stop, s.connect, s.watch("it is back", calmAfter, &s.back))
}

func (s *faultSchedule) connect(ctx context.Context) (err error) {
	s.conn, err = bed.ConnectTo(ctx, s.server.DSN("postgres"))
	return err
}

// watch is a step that counts connections for a while.
func (s *faultSchedule) watch(what string, d time.Duration, in *report.Window) step {
	return func(ctx context.Context) error {
		fmt.Fprintln(os.Stderr, what)
		in.From = time.Now()
		var mostAll, mostLocks int
		defer func() {
			in.To = time.Now()
			s.most, s.locks = max(s.most, mostAll), max(s.locks, mostLocks)
			fmt.Fprintf(os.Stderr, "at most %d connections, and %d for locks and sessions\n", mostAll, mostLocks)
		}()
		for time.Since(in.From) < d {
			var all, locks int
			err := s.conn.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE application_name = 'tenure lock')
				FROM pg_stat_activity WHERE backend_type = 'client backend' AND usename <> 'postgres'`).Scan(&all, &locks)
			mostAll, mostLocks = max(mostAll, all), max(mostLocks, locks)
			if err = errors.Join(err, wait.For(ctx, 100*time.Millisecond)); err != nil {
				return err
			}
		}
		return nil
	}
}

// crowd takes connections, and the cluster's away until it has as many as it wants, and gives
// them back after a while.
func (s *faultSchedule) crowd(ctx context.Context) error {
	var mu sync.Mutex
	var mine []*pgx.Conn // guarded by mu
	err := wait.Until(ctx, 30*time.Second, "the outsider did not get its connections", func() (bool, error) {
		if _, err := s.conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND usename <> 'postgres'"); err != nil {
			return false, err
		}
		var group sync.WaitGroup
		for range s.outsider - len(mine) {
			group.Go(func() {
				c, err := pgx.Connect(ctx, s.server.DSN("postgres"))
				mu.Lock()
				defer mu.Unlock()
				if err == nil { // else it tries again
					mine = append(mine, c)
				}
			})
		}
		group.Wait()
		return len(mine) == s.outsider, nil
	})
	if err == nil {
		err = s.watch("an outsider has the connections", s.fault, &s.crowded)(ctx)
	}
	for _, c := range mine {
		_ = c.Close(context.WithoutCancel(ctx)) // it is gone in any case
	}
	s.crowded.To = time.Now()
	return err
}

// stop ends the server for a while. In its place something listens that hears who calls, and
// hangs up.
func (s *faultSchedule) stop(ctx context.Context) error {
	c, err := pgx.ParseConfig(s.server.DSN("postgres"))
	if err != nil {
		return err
	}
	if err := s.server.Crash(ctx); err != nil {
		return err
	}
	path := fmt.Sprintf("%s/.s.PGSQL.%d", c.Host, c.Port)
	_ = os.Remove(path) // Postgres has done that, if it could
	in, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := in.Accept()
			if err != nil {
				return
			}
			if t, ok := readStartup(c); ok {
				s.refused = append(s.refused, t)
			}
			_ = c.Close()
		}
	})
	fmt.Fprintln(os.Stderr, "the server is down")
	s.down.From = time.Now()
	err = wait.For(ctx, s.fault)
	s.down.To = time.Now()
	_ = in.Close()
	group.Wait()
	_ = os.Remove(path)
	return errors.Join(err, s.server.Resume(ctx))
}

// readStartup reads the first thing that a client says.
func readStartup(c net.Conn) (t try, ok bool) {
	t.at = time.Now()
	if c.SetDeadline(t.at.Add(time.Second)) != nil {
		return t, false
	}
	message, _ := pgproto3.NewBackend(c, c).ReceiveStartupMessage()
	hello, ok := message.(*pgproto3.StartupMessage)
	if !ok {
		return t, false // it cancels something
	}
	t.role, t.pool, t.purpose = hello.Parameters["user"], hello.Parameters["database"], hello.Parameters["application_name"]
	return t, true
}

// readLog reads from the server's log whom it let in and whom not.
func (s *faultSchedule) readLog(ctx context.Context) error {
	var text string
	if err := s.conn.QueryRow(ctx, "SELECT pg_read_file('log/"+stormLog+"')").Scan(&text); err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		stamp, rest, _ := strings.Cut(line, " ")
		who, what, _ := strings.Cut(rest, " ")
		role, pool, named := strings.Cut(who, "@")
		seconds, err := strconv.ParseFloat(stamp, 64)
		if err != nil || !named || role == "postgres" {
			continue
		}
		t := try{at: time.UnixMilli(int64(1000 * seconds)), role: role, pool: pool}
		switch {
		case strings.Contains(what, "too many c") || strings.Contains(what, "remaining connection slots"):
			s.refused = append(s.refused, t)
		case strings.Contains(what, "connection authorized"):
			s.opened = append(s.opened, t)
		}
	}
	return nil
}

// tries counts what the server refused in a time.
func (s *faultSchedule) tries(in report.Window) (out stormTries) {
	type pair struct{ role, pool string }
	pairs := map[pair][]time.Time{}
	clients, locks := 0, 0
	for _, t := range s.refused {
		switch {
		case !in.Has(t.at):
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
	round := func(n int, of float64) float64 { return report.Round(float64(n)/of, 2) }
	out.PerSecond, out.Client = round(all, in.Seconds()), round(clients, in.Seconds())
	out.Locks = report.Share(float64(locks), float64(all))
	out.WorstPair = round(worst, in.Seconds())
	out.PerPair = round(all, in.Seconds()*float64(len(s.bed.Pools)*s.nodes))
	return out
}

// recovery looks at the jobs that finished after a fault.
func (s *faultSchedule) recovery(ctx context.Context, after report.Window) (out stormRecovery, err error) {
	end := after.From
	out.PerPair = s.tries(after).PerPair
	for _, pool := range s.bed.Pools {
		jobs, err := s.bed.Finished(ctx, pool)
		if err != nil {
			return out, err
		}
		first, last := after.To.Sub(end), time.Duration(0) // nothing has finished there: not until then
		for _, j := range jobs {
			late := j.Finished.Sub(end)
			if late >= 0 {
				first = min(first, late)
			}
			if j.Created.Before(end) {
				last = max(last, late)
			}
		}
		out.First, out.Behind = max(out.First, report.Round(first.Seconds(), 1)), max(out.Behind, report.Round(last.Seconds(), 1))
	}
	return out, nil
}
