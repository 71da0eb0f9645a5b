package chaos

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

// The cast of every history: the pools are on servers of their own, and node-2 is
// killed with a job under way.
const (
	pool1, pool2 = job.ID(1) << poolBits, job.ID(2) << poolBits
	written      = pool1 | 1 // writes; runs once, on node-1
	rescued      = pool1 | 2 // only runs; lost with node-2, runs again on node-1
	elsewhere    = pool2 | 1 // of the other pool
	extra        = pool1 | 9 // of the test alone

	one, two, three = "node-1-aaaaaaaa", "node-2-bbbbbbbb", "node-3-cccccccc"
)

var (
	began                     = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	sessionOne, sessionTwo    = uuid.UUID{1}, uuid.UUID{2}
	sessionTTL                = 6 * time.Second
	killedAt, declaredAt, end = 2.0, 9.0, 20.0 // seconds
)

func at(seconds float64) time.Time {
	return began.Add(time.Duration(seconds * float64(time.Second)))
}

// history is all that the checker reads, and what it says of it.
type history struct {
	*checker // of pool-1
	other    *checker
	lines    []report.Line
	out      bytes.Buffer
}

// newHistory is one in which every promise was kept.
func newHistory() *history {
	c := &Cluster{began: began, Bed: &bed.Bed{Servers: make([]*devpg.Server, 2), Config: config.Default(), Pools: []string{"pool-1", "pool-2"}}}
	c.Bed.Config.Acquire.Session.TTL = sessionTTL
	c.lives = []*life{{member: one, born: at(0)}, {member: two, born: at(0), died: at(killedAt)}}
	h := &history{}
	c.out = &h.out
	h.checker = &checker{
		chaos: c,
		acked: map[job.ID]time.Time{written: at(1), rescued: at(1)},
		Record: Record{pool: "pool-1", events: []report.AuditEvent{
			{At: at(0.1), What: "live", Session: sessionOne, Member: one},
			{At: at(0.1), What: "live", Session: sessionTwo, Member: two},
			{At: at(0.2), What: "taken", Session: sessionTwo, Member: two, Epoch: 1},
			{At: at(1.1), What: "claimed", Session: sessionOne, Holder: sessionTwo, Given: true, Epoch: 1, Claim: 1, Turn: 1, Jobs: []job.ID{written}},
			{At: at(1.1), What: "claimed", Session: sessionTwo, Holder: sessionTwo, Epoch: 1, Claim: 2, Turn: 1, Jobs: []job.ID{rescued}},
			{At: at(1.5), What: "released", Session: sessionOne, Claim: 1, Turn: 1},
			{At: at(6), What: "taken", Session: sessionOne, Member: one, Epoch: 2},
			{At: at(declaredAt), What: "dead", Session: sessionTwo, Member: two, Seen: at(killedAt)},
			{At: at(declaredAt), What: "released", Session: sessionTwo, Claim: 2, Turn: 1},
			{At: at(9.1), What: "claimed", Session: sessionOne, Holder: sessionOne, Epoch: 2, Claim: 3, Turn: 2, Jobs: []job.ID{rescued}},
			{At: at(9.5), What: "released", Session: sessionOne, Claim: 3, Turn: 2},
			{At: at(end), What: "left", Session: sessionOne, Member: one, Seen: at(end)},
		},
			Ends: map[job.ID][]Ending{
				written: {{at(1.4), 1, "done", fleet.TxWork{}.Kind()}},
				rescued: {{at(9.4), 2, "done", fleet.PlainWork{}.Kind()}},
			},
			Effects: map[job.ID][]Ending{written: {{at(1.3), 1, one, ""}}},
			Stands:  map[job.ID]string{},
		},
	}
	h.other = &checker{
		chaos: c,
		acked: map[job.ID]time.Time{elsewhere: at(3)},
		Record: Record{
			pool:   "pool-2",
			Ends:   map[job.ID][]Ending{elsewhere: {{at(3.2), 1, "done", fleet.PlainWork{}.Kind()}}},
			Stands: map[job.ID]string{},
		},
	}
	h.lines = []report.Line{
		ran("start", 1.2, one, written, 1), ran("end", 1.35, one, written, 1),
		ran("start", 1.2, two, rescued, 1), // and then it was killed
		ran("start", 9.2, one, rescued, 2), ran("end", 9.3, one, rescued, 2),
		ran("start", 3.1, one, elsewhere, 1), ran("end", 3.15, one, elsewhere, 1),
	}
	return h
}

func ran(what string, seconds float64, member string, id job.ID, turn int32) report.Line {
	return report.Line{At: at(seconds), Member: member, What: what, Job: id, Turn: turn}
}

// fails makes something go wrong with the servers.
func (h *history) fails(f *Fault) {
	h.faults = append(h.faults, f)
	h.other.faults = append(h.other.faults, f)
}

// happens adds to the audit, which is in order of time.
func (h *history) happens(events ...report.AuditEvent) {
	h.events = append(h.events, events...)
	slices.SortStableFunc(h.events, func(a, b report.AuditEvent) int { return a.At.Compare(b.At) })
}

// starts has jobs of one exclusive key claimed at these times.
func (h *history) starts(seconds ...float64) {
	for _, s := range seconds {
		h.happens(report.AuditEvent{At: at(s), What: "keyed", Session: sessionOne, Member: "key k0 of tenant_0001", Jobs: []job.ID{extra}})
	}
}

// never takes something out of the audit.
func (h *history) never(what string, claim int64, session uuid.UUID) {
	h.events = slices.DeleteFunc(h.events, func(e report.AuditEvent) bool { return e.What == what && e.Claim == claim && e.Session == session })
}

// dead is when node-2 was declared dead.
func (h *history) dead() *report.AuditEvent {
	i := slices.IndexFunc(h.events, func(e report.AuditEvent) bool { return e.What == "dead" })
	return &h.events[i]
}

func (h *history) judged() (r Result) {
	judge([]*checker{h.checker, h.other}, h.lines, &r)
	return r
}

// A checker that has never found anything may be one that finds nothing.
func TestTheCheckerFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(h *history)
		want verdict
		told []string // in this order; of the first broken promise
	}{
		"a job is nowhere": {
			func(h *history) { h.acked[extra] = at(4) },
			verdict{Lost: 1},
			[]string{"4.000 s  P1 BROKEN: job 140737488355337 of pool-1 was enqueued and is nowhere", "4.000 s  enqueued"},
		},
		"jobs are nowhere": {
			func(h *history) { h.acked[extra], h.acked[extra+1], h.other.acked[pool2|2] = at(5), at(6), at(4) },
			verdict{Lost: 3},
			[]string{"4.000 s  P1 BROKEN: job 281474976710658 of pool-2 was enqueued"},
		},
		"a job is nowhere, and another server failed over": {
			func(h *history) {
				h.acked[extra] = at(4)
				h.fails(&Fault{Kind: "fail over", Node: -1, Server: 1, Peer: -1, began: at(3.5), torn: at(3.6), ended: at(4.6)})
			},
			verdict{Lost: 1},
			[]string{"3.500 s  fault: fail over", "4.000 s  P1 BROKEN", "4.600 s  mended: fail over"},
		},
		"a job is nowhere that was enqueued well before the fail-over": {
			func(h *history) {
				h.acked[extra] = at(0.5)
				h.fails(&Fault{Kind: "fail over", Node: -1, Server: 0, Peer: -1, began: at(0.7), torn: at(0.8), ended: at(1)})
			},
			verdict{Lost: 1},
			[]string{"0.500 s  P1 BROKEN"},
		},
		"jobs still stand": {
			func(h *history) { h.Stands[extra], h.Stands[extra+1] = "waiting", "waiting" },
			verdict{Unfinished: 2},
			[]string{"P1 BROKEN: job", "is still waiting although all was mended"},
		},
		"two claims on a job": {
			func(h *history) {
				h.happens(report.AuditEvent{At: at(1.3), What: "claimed", Given: true, Session: sessionTwo, Claim: 7, Turn: 1, Jobs: []job.ID{written}},
					report.AuditEvent{At: at(1.6), What: "released", Session: sessionTwo, Claim: 7, Turn: 1})
			},
			verdict{Stale: 1},
			[]string{"enqueued", "1.100 s  claim 1 of session", "P2 BROKEN: job 140737488355329 of pool-1 was claimed by claim 7 while claim 1 stood", "claim 7 of session", "claim 1 released", "claim 7 released"},
		},
		"a claim on a job that another one has kept as it shrank": {
			func(h *history) {
				h.events[3].Jobs = []job.ID{extra, written}
				h.happens(report.AuditEvent{At: at(1.2), What: "shrunk", Session: sessionOne, Claim: 1, Turn: 1, Jobs: []job.ID{written}},
					report.AuditEvent{At: at(1.3), What: "claimed", Given: true, Session: sessionTwo, Claim: 7, Turn: 1, Jobs: []job.ID{extra, written}},
					report.AuditEvent{At: at(1.6), What: "released", Session: sessionTwo, Claim: 7, Turn: 1})
			},
			verdict{Stale: 1},
			[]string{"claim 1 shrunk", "P2 BROKEN: job 140737488355329"},
		},
		"a session claims when it has been declared dead": {
			func(h *history) {
				h.happens(report.AuditEvent{At: at(9.05), What: "claimed", Given: true, Session: sessionTwo, Claim: 7, Turn: 2, Jobs: []job.ID{rescued}},
					report.AuditEvent{At: at(9.08), What: "released", Session: sessionTwo, Claim: 7, Turn: 2})
			},
			verdict{Stale: 1},
			[]string{"9.000 s  session 02000000-0000-0000-0000-000000000000 of " + two + " is dead", "P2 BROKEN: job 140737488355330 of pool-1 was claimed by session 02000000-0000-0000-0000-000000000000, which had ended"},
		},
		"a session claims when it has left": {
			func(h *history) {
				h.happens(report.AuditEvent{At: at(end + 1), What: "claimed", Given: true, Session: sessionOne, Claim: 7, Turn: 3, Jobs: []job.ID{rescued}},
					report.AuditEvent{At: at(end + 2), What: "released", Session: sessionOne, Claim: 7, Turn: 3})
			},
			verdict{Stale: 1},
			[]string{"20.000 s  session 01000000-0000-0000-0000-000000000000 of " + one + " is left", "P2 BROKEN"},
		},
		"a session claims that does not hold the lock": {
			func(h *history) {
				h.happens(report.AuditEvent{At: at(1.6), What: "claimed", Session: sessionOne, Holder: sessionTwo, Epoch: 1, Claim: 7, Turn: 1, Jobs: []job.ID{extra}},
					report.AuditEvent{At: at(1.7), What: "released", Session: sessionOne, Claim: 7, Turn: 1})
			},
			verdict{Stale: 1},
			[]string{"P2 BROKEN: job 140737488355337 of pool-1 was claimed by session 01000000-0000-0000-0000-000000000000, while 02000000-0000-0000-0000-000000000000 held the lock"},
		},
		"epochs go back": {
			func(h *history) {
				h.happens(report.AuditEvent{At: at(7), What: "taken", Member: two, Epoch: 1}, report.AuditEvent{At: at(8), What: "taken", Member: one, Epoch: 1})
			},
			verdict{Epochs: 2},
			[]string{"lock taken, " + one + ", epoch 2", "7.000 s  P2 BROKEN: pool-1: the lock was taken with epoch 1 after 2", "7.000 s  lock taken, " + two + ", epoch 1"},
		},
		"an effect comes twice": {
			func(h *history) { h.Effects[written] = append(h.Effects[written], Ending{at(1.45), 2, two, ""}) },
			verdict{Doubled: 1},
			[]string{"effect by " + one + ", turn 1", "P3 BROKEN: job 140737488355329 of pool-1 has 2 effects", "effect by " + two + ", turn 2"},
		},
		"an end comes twice": {
			func(h *history) {
				h.Ends[rescued] = append(h.Ends[rescued], Ending{at(9.6), 2, "dead: lost too often", fleet.PlainWork{}.Kind()})
			},
			verdict{Doubled: 1},
			[]string{"9.400 s  ended: done, turn 2", "9.600 s  P3 BROKEN: job 140737488355330 of pool-1 ended 2 times", "ended: dead: lost too often"},
		},
		"an end comes without its effect": {
			func(h *history) { delete(h.Effects, written) },
			verdict{Doubled: 1},
			[]string{"P3 BROKEN: job 140737488355329 of pool-1 finished without its effect", "ended: done, turn 1"},
		},
		"an effect comes without an end": {
			func(h *history) { delete(h.Ends, written); h.Stands[written] = "waiting" },
			verdict{Doubled: 1, Unfinished: 1},
			[]string{"1.300 s  P3 BROKEN: job 140737488355329 of pool-1 has an effect but has not ended", "effect by"},
		},
		"a job starts after its end": {
			func(h *history) { h.lines = append(h.lines, ran("start", 1.6, one, written, 2)) },
			verdict{Late: 1},
			[]string{"ended: done", "1.600 s  P3 BROKEN: job 140737488355329 of pool-1 started on " + one + " 200ms after its end", "1.600 s  handler on " + one + ": start, turn 2"},
		},
		"a job starts after its end, and the server fails over later": {
			func(h *history) {
				h.lines = append(h.lines, ran("start", 1.6, one, written, 2))
				h.fails(&Fault{Kind: "fail over", Node: -1, Server: 0, Peer: -1, began: at(15), torn: at(15.5), ended: at(16)})
			},
			verdict{Late: 1},
			[]string{"1.600 s  P3 BROKEN: job 140737488355329 of pool-1 started on " + one + " 200ms after its end"},
		},
		"a job starts on a second node that was never declared dead": {
			func(h *history) { h.lines = append(h.lines, ran("start", 1.25, three, written, 1)) },
			verdict{Overlaps: 1},
			[]string{"1.200 s  handler on " + one + ": start, turn 1", "1.250 s  P4 BROKEN: job 140737488355329 of pool-1 started on " + three + " while it ran on " + one + ", whose session stood", "handler on " + one + ": end"},
		},
		"a job starts twice on its node": {
			func(h *history) { h.lines = append(h.lines, ran("start", 1.25, one, written, 1)) },
			verdict{Overlaps: 1},
			[]string{"P4 BROKEN"},
		},
		"a job is taken from a node that lives": {
			func(h *history) { h.chaos.lives[1].died = time.Time{}; h.never("dead", 0, sessionTwo) },
			verdict{Overlaps: 1},
			[]string{"1.200 s  handler on " + two + ": start, turn 1", "claim 2 released", "9.200 s  P4 BROKEN: job 140737488355330"},
		},
		"a job starts before its node is declared dead": {
			func(h *history) { h.chaos.lives[1].died = time.Time{}; h.dead().At = at(9.25); h.happens() },
			verdict{Overlaps: 1},
			[]string{"9.200 s  P4 BROKEN: job 140737488355330", "9.250 s  session 02000000-0000-0000-0000-000000000000 of " + two + " is dead"},
		},
		"a session is declared dead too soon": {
			func(h *history) { h.dead().Seen = at(declaredAt - 3.9) },
			verdict{Hasty: 1},
			[]string{"9.000 s  P4 BROKEN: pool-1: session 02000000-0000-0000-0000-000000000000 of " + two + " was declared dead after only 3.9s without a heartbeat"},
		},
		"a limit is exceeded": {
			func(h *history) {
				h.happens(report.AuditEvent{At: at(9.15), What: "excess", Session: sessionOne, Member: "kind load.tx of tenant_0001: 7 of 6", Claim: 3, Turn: 2, Jobs: []job.ID{rescued}})
			},
			verdict{Exceeded: 1},
			[]string{"9.150 s  P8 BROKEN: job 140737488355330", "was claimed beyond a limit, kind load.tx of tenant_0001: 7 of 6 in flight"},
		},
		"a job is claimed beside another one of its key": {
			func(h *history) {
				h.happens(report.AuditEvent{At: at(9.15), What: "beside", Session: sessionOne, Member: "key k0 of tenant_0001", Claim: 3, Turn: 2, Jobs: []job.ID{rescued, written}})
			},
			verdict{Beside: 1},
			[]string{"9.150 s  P7 BROKEN: job 140737488355330", "was claimed beside job 140737488355329 of its key k0 of tenant_0001"},
		},
		"a job is claimed before another one of its key": {
			func(h *history) {
				h.asked = map[job.ID]time.Time{rescued: at(1.01)}
				h.happens(report.AuditEvent{At: at(9.15), What: "overtaken", Session: sessionOne, Member: "key k0 of tenant_0001", Claim: 3, Turn: 2, Jobs: []job.ID{rescued, written}})
			},
			verdict{Overtaken: 1},
			[]string{"9.150 s  P7 BROKEN: job 140737488355330", "job 140737488355329 of its key k0 of tenant_0001 was before it"},
		},
		"jobs of a key are claimed faster than its rate says": {
			func(h *history) { h.starts(10, 10.01, 10.02, 10.2, 10.74, 11.2) },
			verdict{Hurried: 1},
			[]string{"10.200 s  P8 BROKEN: job 140737488355337", "was claimed beyond the rate of its key k0 of tenant_0001"},
		},
		"the time in which the database was down is held against a session": {
			func(h *history) {
				h.fails(&Fault{Kind: "crash", Node: -1, Server: 0, Peer: -1, began: at(0.5), stopped: at(1), ended: at(6)})
			},
			verdict{Hasty: 1},
			[]string{"fault: crash", "mended: crash", "P4 BROKEN", "after only 3s without a heartbeat"},
		},
		"claims are left": {
			func(h *history) { h.never("released", 1, sessionOne); h.never("released", 3, sessionOne) },
			verdict{Left: 2},
			[]string{"P11 BROKEN", "is in claim 1 although every node has stopped", "1.100 s  claim 1 of session", "2.000 s  " + two + " killed"},
		},
		"two promises, and the later one is found first": {
			func(h *history) { h.acked[extra] = at(8); h.never("released", 1, sessionOne) },
			verdict{Lost: 1, Left: 1},
			[]string{"P11 BROKEN"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHistory()
			c.do(h)
			r := h.judged()
			require.Equal(t, c.want, r.verdict)
			require.Error(t, r.Fault())
			told := h.out.String()
			require.Equal(t, 1, strings.Count(told, "BROKEN"), "one story: %s", told)
			requireInOrder(t, told, append([]string{"0.000 s  " + one + " started"}, c.told...)...)
		})
	}
}

func requireInOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, ok := strings.Cut(rest, part)
		require.True(t, ok, "%q, in its place, in:\n%s", part, text)
		rest = after
	}
}

// Nor may it find what nobody promised.
func TestTheCheckerHoldsNothingElseAgainstIt(t *testing.T) {
	t.Parallel()
	clean := Result{Enqueued: 3, Starts: 4, Finished: 3}
	for name, c := range map[string]struct {
		do   func(h *history)
		want func(r *Result)
	}{
		"all is well": {func(*history) {}, func(*Result) {}},
		"a node is frozen, and declared dead before its job runs again": {
			func(h *history) { h.chaos.lives[1].died = time.Time{} },
			func(*Result) {},
		},
		"what failed runs again": {
			func(h *history) {
				h.lines[1].What = "fail"
				h.lines = append(h.lines, ran("start", 1.36, three, written, 1), ran("end", 1.38, three, written, 1))
			},
			func(r *Result) { r.Starts++ },
		},
		"jobs end as dead letters, without an effect": {
			func(h *history) { h.Ends[extra] = []Ending{{at(5), 1, "dead: nonsense", fleet.TxWork{}.Kind()}} },
			func(r *Result) { r.Enqueued++; r.Dead++ },
		},
		"a claim follows on one that shrank": {
			func(h *history) {
				h.events[3].Jobs = []job.ID{rescued + 1, written}
				h.happens(report.AuditEvent{At: at(1.2), What: "shrunk", Session: sessionOne, Claim: 1, Turn: 1, Jobs: []job.ID{written}},
					report.AuditEvent{At: at(1.3), What: "claimed", Given: true, Session: sessionTwo, Claim: 7, Turn: 1, Jobs: []job.ID{rescued + 1}},
					report.AuditEvent{At: at(1.6), What: "released", Session: sessionTwo, Claim: 7, Turn: 1})
			},
			func(*Result) {},
		},
		"of two jobs of a key that were enqueued at the same time either goes first": {
			func(h *history) {
				h.asked = map[job.ID]time.Time{rescued: at(0.99)}
				h.happens(report.AuditEvent{At: at(9.15), What: "overtaken", Session: sessionOne, Member: "key k0 of tenant_0001", Claim: 3, Turn: 2, Jobs: []job.ID{rescued, written}},
					report.AuditEvent{At: at(9.15), What: "overtaken", Session: sessionOne, Member: "key k0 of tenant_0001", Claim: 3, Turn: 2, Jobs: []job.ID{rescued, extra}})
			},
			func(*Result) {},
		},
		"jobs of a key are claimed at its rate": {
			func(h *history) { h.starts(10, 10, 10, 10.25, 10.5, 10.75, 13, 13.1, 13.2, 13.3) },
			func(*Result) {},
		},
		"only the reaper was cut off from the database": {
			func(h *history) {
				h.fails(&Fault{Kind: "hole", Node: 0, Server: 0, Peer: -1, began: at(1), ended: at(8)})
			},
			func(*Result) {},
		},
		"another server was down": {
			func(h *history) {
				h.fails(&Fault{Kind: "crash", Node: -1, Server: 1, Peer: -1, began: at(1), stopped: at(1), ended: at(8)})
			},
			func(*Result) {},
		},
		"a server is up while its standby is made": {
			func(h *history) {
				h.fails(&Fault{Kind: "fail over", Node: -1, Server: 0, Peer: -1, began: at(1), torn: at(8.7), stopped: at(8.8), ended: at(8.9)})
			},
			func(r *Result) { r.Starts-- }, // the one in the fail-over is left out
		},
		"a primary takes jobs with it": {
			func(h *history) {
				h.acked[extra] = at(0.7)
				h.fails(&Fault{Kind: "fail over", Node: -1, Server: 0, Peer: -1, began: at(0.4), torn: at(0.5), ended: at(0.8)})
			},
			// What handlers did until half a second afterwards is left out.
			func(r *Result) { r.TornOff++; r.Starts -= 2 },
		},
		"what a node has sent before it was killed ends when a fail-over is over": {
			func(h *history) {
				h.lines = slices.DeleteFunc(h.lines, func(l report.Line) bool { return l.Job == written && l.What == "end" })
				h.lines = append(h.lines, ran("start", 1.45, three, written, 1), ran("end", 1.46, three, written, 1))
				h.fails(&Fault{Kind: "fail over", Node: -1, Server: 0, Peer: -1, began: at(0.4), torn: at(0.5), stopped: at(0.6), ended: at(0.75)})
			},
			func(r *Result) { r.Starts-- },
		},
		"what ran on when a fail-over was over starts again": {
			func(h *history) {
				h.lines = append(h.lines, ran("start", 1.45, one, written, 2), ran("end", 1.46, one, written, 2))
				h.fails(&Fault{Kind: "fail over", Node: -1, Server: 0, Peer: -1, began: at(0.4), torn: at(0.5), ended: at(0.75)})
			},
			func(r *Result) { r.Starts -= 2 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHistory()
			c.do(h)
			want := clean
			c.want(&want)
			r := h.judged()
			require.Equal(t, want, r, h.out.String())
			require.NoError(t, r.Fault())
			require.Empty(t, h.out.String())
		})
	}
}

// A node that did not stop is no row anywhere, so the checker is told.
func TestAnUncleanStopBreaksAPromise(t *testing.T) {
	t.Parallel()
	require.Error(t, Result{verdict: verdict{Unclean: 1}}.Fault())
	require.NoError(t, Result{TornOff: 1, Dead: 1, Unknown: 1, FailedStarts: 1}.Fault())
}

func TestNoticed(t *testing.T) {
	t.Parallel()
	nodes, err := fleet.New(config.Default(), 2, "local", t.TempDir())
	require.NoError(t, err)
	began := time.Now().Truncate(time.Millisecond)
	for i, n := range nodes.Nodes {
		f, err := os.Create(n.LogFile())
		require.NoError(t, err)
		log := bed.Log(f, zap.InfoLevel)
		log.Named("session").With(zap.String("pool", "other")).Warn("acquire lock could not be renewed", zap.Error(errors.New("timeout")))
		log.Named("session").With(zap.String("pool", "main")).Info("session opened")
		log.Named("session").With(zap.String("pool", "main")).Warn("acquire lock could not be read", zap.Error(errors.New("timeout")))
		if i == 1 {
			log.Named("session").With(zap.String("pool", "main")).Warn("acquire lock could not be renewed", zap.Error(errors.New("timeout")))
		}
		require.NoError(t, f.Close())
	}
	complaints, err := readComplaints(nodes)
	require.NoError(t, err)
	f := &Fault{Node: 1, began: began.Add(-time.Second), ended: began.Add(time.Hour)}
	at := f.noticed(complaints, "main")
	require.Len(t, at, 1)
	require.GreaterOrEqual(t, at[0], time.Second)
	f.Node = 0
	require.Empty(t, f.noticed(complaints, "main"), "the other node did not say so")
	f.Node, f.began = 1, began.Add(time.Minute)
	require.Empty(t, f.noticed(complaints, "main"), "it said so before")
}
