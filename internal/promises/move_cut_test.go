package promises_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// makeEveryState puts jobs of t1 into p1 in every state, with keys and failed runs, and some
// of t2, and returns what stands where.
func makeEveryState(b *testbed, c *tenure.Client) map[string]string {
	b.t.Helper()
	b.many(c, 40, eitherKind) // t1 and t2 in turn
	ctx := tenancy.For(b.t.Context(), "t1")
	for i := range 3 {
		_, err := c.Enqueue(ctx, write{i}, tenure.Unique(fmt.Sprint(i)), tenure.Priority(i), tenure.OnQueue("mail"), tenure.Meta(map[string]any{"by": "test"}))
		require.NoError(b.t, err)
		_, err = c.Enqueue(ctx, write{i}, tenure.Unique(fmt.Sprint("later", i)), tenure.In(time.Hour))
		require.NoError(b.t, err)
	}
	const columns = "id, created_at, turn, priority, attempt, tenant_id, queue, kind, payload"
	const jobs = "SELECT nextval('tenure.job_id'), now(), 5, 1, 2, 't1', 'other', 'write', '{\"n\": 1.50}'"
	b.exec("p1", "INSERT INTO tenure.external_job ("+columns+") "+jobs+" FROM generate_series(1, 3) n")
	b.exec("p1", "INSERT INTO tenure.suspended_job ("+columns+", unique_key, origin, due_at) "+jobs+", 's' || n, 'timer_job', '9999-12-31' FROM generate_series(1, 3) n")
	b.exec("p1", "INSERT INTO tenure.dead_letter_job ("+columns+", unique_key, origin, error) "+jobs+", 's' || n, 'job', E'it\\nfailed' FROM generate_series(1, 3) n")
	b.exec("p1", "INSERT INTO tenure.unique_job SELECT tenant_id, unique_key, id FROM tenure.suspended_job") // a dead job has given its key up
	b.exec("p1", "INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload, timeout_ms, max_attempts, exclusive_key, external) "+
		"SELECT nextval('tenure.job_id'), now(), now() - n * interval '1 minute', 3, 0, 1, 0, CASE n % 9 WHEN 0 THEN 't2' ELSE 't1' END, 'q', 'write', 'done', 'null', n, n, n, true FROM generate_series(1, 250) n")
	for _, place := range []string{"job", "dead_letter_job", "completed_job"} {
		b.exec("p1", "INSERT INTO tenure.job_error (job_id, attempt, node, error, stack) SELECT id, n, 'a', 'no ' || n, NULLIF('stack', 'stack') FROM tenure."+place+" j, generate_series(1, 2) n WHERE j.id % 3 = 0")
	}
	return whereJobsStand(b, "p1")
}

// whereJobsStand says, for each job of t1 and t2, unique key and failed run, where it stands in
// a pool and what it is, but for what a move changes: position and turn.
func whereJobsStand(b *testbed, pool string) map[string]string {
	b.t.Helper()
	out := map[string]string{}
	for _, place := range []string{"job", "timer_job", "external_job", "suspended_job", "dead_letter_job", "completed_job", "job_error", "unique_job"} {
		rows, err := b.db[pool].Query(b.t.Context(), "SELECT (to_jsonb(j) - 'position' - 'turn' - 'ready_at')::text FROM tenure."+place+" j")
		require.NoError(b.t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(b.t, err)
		for _, l := range lines {
			require.Empty(b.t, out[l], "%s stands twice in pool %s", l, pool)
			out[l] = place
		}
	}
	return out
}

// onlyTenant keeps what belongs to t1, or what does not.
func onlyTenant(b *testbed, all map[string]string, t1 bool) map[string]string {
	own := map[string]bool{} // ids of t1's jobs
	id := func(line, key string) string {
		_, rest, _ := strings.Cut(line, `"`+key+`": `)
		return strings.TrimRight(rest[:strings.IndexAny(rest, ",}")], " ")
	}
	for line := range all {
		if strings.Contains(line, `"tenant_id": "t1"`) && strings.Contains(line, `"id": `) {
			own[id(line, "id")] = true
		}
	}
	out := map[string]string{}
	for line, place := range all {
		mine := strings.Contains(line, `"tenant_id": "t1"`)
		if place == "job_error" {
			mine = own[id(line, "job_id")]
		}
		if mine == t1 {
			out[line] = place
		}
	}
	return out
}

// requireMoved sees that all of t1 stands in one pool and all of t2 in p1, as it was, and
// nothing anywhere else.
func requireMoved(b *testbed, was map[string]string, to string) {
	b.t.Helper()
	want := map[string]map[string]string{"p1": onlyTenant(b, was, false), to: onlyTenant(b, was, true)}
	if to == "p1" {
		want["p1"] = was
	}
	for pool := range b.db {
		here := whereJobsStand(b, pool)
		for line, place := range want[pool] {
			require.Equal(b.t, place, here[line], "where %s stands in pool %s", line, pool)
		}
		for line, place := range here {
			require.Equal(b.t, want[pool][line], place, "where %s stands in pool %s", line, pool)
		}
	}
}

// A move is interrupted at every step, by anyone who waits for it, and goes on when it is
// called again: jobs of every state are where they belong, as they were, once.
func TestMoveInterrupted(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 2)
	b.prepare("t1", "p2")
	delete(b.cfg.Tenants.Static, "t3")
	delete(b.cfg.Tenants.Static, "t4")
	c := b.client(b.cfg)
	was := makeEveryState(b, c)
	goals := []string{"p1", "p2"}
	interrupted := 0
	for stop := 1; ; stop++ {
		to := goals[stop%2]
		ctx, cancel := context.WithCancel(t.Context())
		steps := 0
		_, err := c.Operator().Tenants().Move(ctx, "t1", to, operate.MoveOptions{Progress: func(string) {
			if steps++; steps == stop {
				cancel()
			}
		}})
		cancel()
		if steps >= stop {
			require.ErrorIs(t, err, context.Canceled)
			interrupted++
		} else {
			require.NoError(t, err)
		}
		moved := b.move(c, "t1", to)
		requireMoved(b, was, to)
		require.Zero(t, b.count(map[string]string{"p1": "p2", "p2": "p1"}[to], "SELECT count(*) FROM tenure.tenant WHERE state = 'active'"))
		require.Equal(t, 1, b.count(to, "SELECT count(*) FROM tenure.tenant WHERE state = 'active' AND arrived = '{}'"))
		require.Equal(t, to, moved.To)
		if steps < stop {
			break
		}
	}
	require.Equal(t, 7, interrupted, "steps of a move without anything to wait for")
}

// cutEach is after how many statements the next one is cut: in short runs a ninth of them is, which
// changes the direction with each, and all in make verify.
func cutEach() int {
	if testing.Short() {
		return 9
	}
	return 1
}

// The connections of a move are cut before, or after, each of its statements.
func TestMoveCut(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]faultproxy.Verdict{"before": faultproxy.CutBefore, "after": faultproxy.CutAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 2, 2)
			b.prepare("t1", "p2")
			delete(b.cfg.Tenants.Static, "t3")
			delete(b.cfg.Tenants.Static, "t4")
			was := makeEveryState(b, b.client(b.cfg))
			cfg, p1 := b.behind(b.cfg, "p1")
			cfg, p2 := b.behind(cfg, "p2")
			c := b.client(cfg)
			var seen, cutAt atomic.Int64
			rule := func(e faultproxy.Event) faultproxy.Verdict {
				if e.App == "tenure jobs" && e.SQL != "" && seen.Add(1) == cutAt.Load() {
					return verdict
				}
				return faultproxy.Pass
			}
			p1.SetRule(rule)
			p2.SetRule(rule)
			goals := []string{"p1", "p2"}
			failed := 0
			for at := int64(1); ; at += int64(cutEach()) {
				to := goals[at%2]
				seen.Store(0)
				cutAt.Store(at)
				_, err := c.Operator().Tenants().Move(t.Context(), "t1", to, operate.MoveOptions{})
				cutAt.Store(-1)
				if err != nil {
					failed++
				}
				last := seen.Load() < at
				b.move(c, "t1", to)
				requireMoved(b, was, to)
				if last {
					require.NoError(t, err)
					break
				}
			}
			require.Greater(t, failed, 30/cutEach(), "a move has more statements")
			p1.SetRule(nil)
			p2.SetRule(nil)
		})
	}
}

// A move is cut off after each statement that changes where the tenant is, or where its
// finished jobs are, and the next command is for another pool: a third one, or that which
// was left.
func TestMoveCutThenElsewhere(t *testing.T) {
	t.Parallel()
	changes := regexp.MustCompile(`(?i)\b(update tenure\.tenant|insert into tenure\.tenant|completed_job|commit)\b`)
	for name, back := range map[string]bool{"on to a third pool": false, "back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 3, 2)
			b.prepare("t1", "p2")
			b.prepare("t1", "p3")
			for _, id := range []tenancy.ID{"t3", "t4", "t5", "t6"} {
				delete(b.cfg.Tenants.Static, id)
			}
			was := makeEveryState(b, b.client(b.cfg))
			var cutAfter atomic.Pointer[func(pool, sql string) bool]
			cfg := b.cfg
			for _, pool := range []string{"p1", "p2", "p3"} {
				var p *faultproxy.Proxy
				cfg, p = b.behind(cfg, pool)
				p.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
					if cut := cutAfter.Load(); cut != nil && e.App == "tenure jobs" && changes.MatchString(e.SQL) && (*cut)(pool, e.SQL) {
						return faultproxy.CutAfter
					}
					return faultproxy.Pass
				})
			}
			c := b.client(cfg)
			home, elsewhere := "p1", 0
			// cutShort moves the tenant, and says whether that was cut off, and whether the tenant
			// could go on elsewhere then.
			cutShort := func(to, then string, after func(pool, sql string) bool) bool {
				var cut atomic.Bool
				once := func(pool, sql string) bool { return !cut.Load() && after(pool, sql) && !cut.Swap(true) }
				cutAfter.Store(&once)
				_, err := c.Operator().Tenants().Move(t.Context(), "t1", to, operate.MoveOptions{})
				cutAfter.Store(nil)
				if !cut.Load() {
					require.NoError(t, err)
				}
				switch _, refused := c.Operator().Tenants().Move(t.Context(), "t1", then, operate.MoveOptions{}); {
				case refused == nil:
					elsewhere++
				case strings.Contains(refused.Error(), "it lives there already"):
				default:
					require.ErrorContains(t, refused, "let that come to its end first")
					b.move(c, "t1", to)
					b.move(c, "t1", then)
				}
				home = then
				requireMoved(b, was, home)
				return cut.Load()
			}
			elsewhereFrom := func(turn int) (to, then string) {
				others := slices.DeleteFunc([]string{"p1", "p2", "p3"}, func(p string) bool { return p == home })
				if back {
					return others[turn%2], home
				}
				return others[turn%2], others[(turn+1)%2]
			}
			for at := 1; ; at += cutEach() {
				to, then := elsewhereFrom(at)
				var seen atomic.Int64
				if !cutShort(to, then, func(string, string) bool { return seen.Add(1) == int64(at) }) {
					break
				}
			}
			require.Greater(t, elsewhere, 5/cutEach(), "a tenant that has arrived may go on")

			// A move has not always as many statements. So where a batch of finished jobs stands in
			// two pools is looked for by itself, once its insertion is committed.
			batches := 0
			for _, batch := range []int64{1, 1, 2, 2} {
				to, then := elsewhereFrom(batches)
				var inserted atomic.Int64
				if cutShort(to, then, func(pool, sql string) bool {
					if strings.Contains(sql, "INTO tenure.completed_job") {
						inserted.Add(1)
					}
					return pool == to && inserted.Load() == batch && strings.EqualFold(sql, "commit")
				}) {
					batches++
				}
			}
			require.Equal(t, 4, batches, "there are two, and each is cut off on two ways")
		})
	}
}
