package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/operate"
)

// put are the forms of a change to each of the things that are arguments.
func put(method, path, arg, flags string) []form {
	return []form{{method: method, path: path, args: arg, flags: flags}}
}

// freezing are the commands about what is frozen in all pools: queues, or kinds.
func freezing(noun string) []spec {
	path := "/" + noun + "s/"
	listed := spec{
		name: "queues list", short: "List the queues by pool: what waits there, and since when they are frozen", forms: list("/queues"),
		long:    "Lists queues that have jobs, that some kind's jobs wait in, or that are frozen. What waits is counted up to ten\nthousand.",
		flags:   []flag{poolFlag("only this `pool`"), textFlag("tenant", "only what this tenant has in them")},
		columns: "queue pool waiting running tenants oldest=oldest_seconds kinds frozen=frozen_since",
		cells: map[string]cell{
			"waiting": of(func(_ *app, q *shownQueue) string { return bounded(q.Waiting) }), "oldest": of(func(_ *app, q *shownQueue) string { return q.oldest() }),
			"kinds": of(func(_ *app, q *shownQueue) string { return strings.Join(q.Kinds, " ") }), "frozen": when("frozen_since"),
		},
	}
	if noun == "kind" {
		listed = spec{
			name: "kinds list", short: "List the frozen kinds by pool, and since when", forms: list(path + "frozen"),
			columns: "kind pool since", cells: map[string]cell{"since": when("since")},
		}
	}
	return []spec{
		listed,
		{
			name: noun + "s freeze", args: strings.ToUpper(noun), short: "Start no jobs of a " + noun + ", of all tenants in all pools, until it is thawed; running jobs continue",
			long: "Jobs are enqueued meanwhile, and timers and schedules add to what waits; external workers acquire none,\n" +
				"either. If a pool does not answer the command says in which it holds: type it again, as after a pool\n" +
				"was added.",
			forms: put(http.MethodPost, path+"{"+noun+"}/freeze", noun, ""), handled: true, said: done(noun, "is frozen; thaw it with: tenure "+noun+"s thaw %s"),
		},
		{
			name: noun + "s thaw", args: strings.ToUpper(noun), short: "Let the jobs of a frozen " + noun + " run again",
			forms: put(http.MethodPost, path+"{"+noun+"}/thaw", noun, ""), said: done(noun, "is thawed"), absent: "see: tenure " + noun + "s list",
		},
	}
}

var poolCommands = []spec{
	{
		name: "pools list", short: "List the pools with their lock holders and jobs", forms: list("/pools"),
		long:    "Jobs are counted up to ten thousand of each sort; those that wait are without those that nodes have claimed.",
		columns: "pool state holder waiting claimed=running scheduled awaiting dead",
		cells: map[string]cell{
			"holder":  of(func(_ *app, p *shownPool) string { return p.ifAnswers(cmp.Or(p.Holder, "nobody")) }),
			"waiting": of(func(_ *app, p *shownPool) string { return p.ifAnswers(bounded(p.Waiting)) }), "scheduled": of(func(_ *app, p *shownPool) string { return p.ifAnswers(bounded(p.Scheduled)) }),
			"awaiting": of(func(_ *app, p *shownPool) string { return p.ifAnswers(bounded(p.Awaiting)) }), "dead": of(func(_ *app, p *shownPool) string { return p.ifAnswers(bounded(p.Dead)) }),
		},
	},
	{
		name: "pools freeze", args: "POOL", short: "Claim no jobs in a pool until it is thawed; running jobs continue",
		forms: put(http.MethodPost, "/pools/{pool}/freeze", "pool", ""), said: done("pool", "is frozen; thaw it with: tenure pools thaw %s"),
	},
	{
		name: "pools thaw", args: "POOL", short: "Resume a frozen pool",
		forms: put(http.MethodPost, "/pools/{pool}/thaw", "pool", ""), said: done("pool", "is thawed"),
	},
	{
		name: "pools drain", args: "POOL", short: "Freeze a pool and wait until nothing is running there",
		long: "Waits acquire.session.ttl, as long as a node may be silent, longer than other commands do;\n" +
			"run it again to keep waiting. It does not wait for dead nodes: the jobs they had claimed\n" +
			"run again once the pool is thawed.",
		check: func(q *question) error { _, err := knownPool(q, "pool", q.args[0]); return err }, run: drainPool, limit: manyLimit,
	},
	{
		name: "locks", short: "Show which node holds each pool's acquire lock", forms: list("/locks"), show: showLocks,
		columns: "pool node member=holder epoch since expires_in timeline frozen",
		cells: map[string]cell{
			"member": of(func(_ *app, l *shownLock) string { return l.member() }), "since": of(func(a *app, l *shownLock) string { return a.now.stamp(l.Since) }), "expires_in": of(func(_ *app, l *shownLock) string { return l.left() }),
			"timeline": of(func(_ *app, l *shownLock) string { return l.timeline() }), "frozen": of(func(_ *app, l *shownLock) string { return map[bool]string{false: "no", true: "yes"}[l.Frozen] }),
		},
	},
	{
		name: "locks history", short: "Show how the pools' locks have changed hands, the newest change first", forms: list("/locks/changes"),
		long: "Lists who took and released the acquire locks, and when pools were frozen. Each ledger keeps the last\n" +
			"500 epochs of its lock; what nodes of before ledger version 28 do is not in it.",
		flags:   []flag{poolFlag("only this `pool`"), flagOf("limit", 50, "how many changes to show, at most").by(between(1, maxLimit)).sentAlways()},
		columns: "at pool epoch what=text", cells: map[string]cell{"what": of(func(_ *app, c *struct{ Text string }) string { return c.Text })},
	},
	{
		name: "nodes", short: "List the nodes that work on the pools, or did within the last day", forms: list("/nodes"), show: showNodes,
		long: "A node has a session in every pool that it works on. It is idle if it is alive but no pool\n" +
			"has needed it for a while. This lists the nodes that the databases know, and with --server\n" +
			"those that have not worked on any pool yet, too. -o json has each session.",
		flags: []flag{flagOf("live", false, "only live nodes")},
	},
	{
		name: "doctor", short: "Look for what is wrong with the databases and the nodes; exits with 0 if nothing is", forms: list("/doctor"), show: showExamination, withoutStart: true,
		long: "Looks at connections, ledgers, privileges, clocks, vacuum, old transactions, replication\n" +
			"slots, locks without a holder and jobs that are stuck, and says of each finding why it matters\n" +
			"and what to type. It changes nothing. It exits with 1 if there are errors or warnings; notes are\n" +
			"about what may be meant.",
		flags: []flag{
			flagOf("within", 5*time.Second, "how long each pool may take; all are asked at the same time").as("within_ms").by(inMS(1)),
			flagOf("pool", []string(nil), "only this `pool`; may be repeated (default: all)").by(knownPool),
		},
		check: func(q *question) error {
			if within, err := q.cmd.Flags().GetDuration("within"); err != nil || within <= 0 {
				return usagef("--within %v: must be more than 0", within)
			}
			return nil
		},
		limit: 15 * time.Minute,
	},
	{
		name: "audit", short: "List what operators have done, over all pools, the last of it first", forms: list("/audit"),
		long: "Each pool notes what is done in it by this command, the API, the dashboard and programs, who did it,\nand when, and keeps that for ninety days. What fails is not noted, or not done in full.\n\n" +
			"Actions:\n" + auditActions(),
		flags: []flag{
			textFlag("who", "only what they `name` has done"), textFlag("action", "only this `action`, or those with this word, such as job, freeze or limit"),
			textFlag("tenant", "only what was done to this tenant"), textFlag("job", "only what was done to the job with this `id`").by(arguments["id"]),
			poolFlag("only what was done in this pool"), limitFlag(100, "entries"), afterFlag,
		},
		columns: "when=at who action tenant pool what=text", cells: map[string]cell{"what": of(func(_ *app, e *struct{ Text string }) string { return e.Text })},
	},
}

// auditActions are the actions that the audit can have, those of a thing in a line.
func auditActions() string {
	var lines []string
	last := ""
	for _, action := range operate.AuditActions {
		of, _, _ := strings.Cut(action, ".")
		if of != last {
			lines, last = append(lines, "  "+action), of
		} else {
			lines[len(lines)-1] += ", " + action
		}
	}
	return strings.Join(lines, "\n")
}

// shownQueue is a queue as the API answers it.
type shownQueue struct {
	Queue            string
	Waiting, Running int64
	Oldest           float64 `json:"oldest_seconds"`
	Kinds            []string
	FrozenSince      *time.Time `json:"frozen_since"`
}

func (q *shownQueue) oldest() string {
	if q.Waiting == 0 {
		return ""
	}
	return time.Duration(q.Oldest * float64(time.Second)).Round(time.Second).String()
}

// shownPool is a pool as the API answers it.
type shownPool struct {
	Pool, State, Holder                         string
	Held, Frozen                                bool
	Epoch                                       int64
	Waiting, Running, Scheduled, Awaiting, Dead int64
	Oldest                                      float64 `json:"oldest_seconds"`
	Totals                                      struct{ Ended, Done, Died int64 }
}

func (p *shownPool) answers() bool {
	return p.State != operate.PoolDown && p.State != operate.PoolUnfit
}

func (p *shownPool) ifAnswers(text string) string {
	if !p.answers() {
		return ""
	}
	return text
}

// bounded is a number of jobs that are not counted any further once they are very many.
func bounded(n int64) string {
	if operate.More(n) {
		return ">10000"
	}
	return strconv.FormatInt(n, 10)
}

// drainLook is how often a drain looks what still runs.
const drainLook = 200 * time.Millisecond

// shownSession is a node's session in a pool as the API answers it.
type shownSession struct {
	Pool, Session, Node, Member, Version, State string
	NodeState                                   string `json:"node_state"`
	Kinds                                       []string
	Claims                                      int
	LastSeen                                    time.Time `json:"last_seen"`
	Beat                                        int64
	TTLMS                                       int64 `json:"ttl_ms"`
}

// drainPool freezes a pool and waits until nothing runs there: a frozen pool has no holder who would take back the
// claims of nodes that have died.
func drainPool(ctx context.Context, q *question, s *server) error {
	pool := q.args[0]
	at := "/pools/" + url.PathEscape(pool)
	if _, err := s.ask(ctx, http.MethodPost, at+"/freeze", nil, nil); err != nil {
		return err
	}
	seen, ttl := silence{}, time.Duration(0)
	if s.here != nil {
		ttl = s.here.cfg.Acquire.Session.TTL
	}
	left, unknown := 0, error(nil) // what was seen last to run, and why it was not seen since
	for until := time.Now().Add(operateLimit + ttl); ; {
		var claims struct{ Items []shownSession }
		err := errors.Join(s.get(ctx, at+"/claims", nil, &claims), errors.Join(s.failed...))
		switch {
		case err == nil:
			var dead int
			left, unknown = 0, nil
			for _, c := range claims.Items {
				if seen.dead(&c, ttl) {
					dead += c.Claims
				} else {
					left += c.Claims
				}
			}
			if left == 0 {
				text := ""
				if dead > 0 {
					text = "; " + plural.Count(dead, "claim of a dead node is", "claims of dead nodes are") + " given back when it is thawed"
				}
				return say(q.a, fmt.Sprintf("pool %s is frozen, and nothing is running there%s; thaw it with: tenure pools thaw %[1]s", pool, text))
			}
		case ctx.Err() == nil: // or it is time that has run out, and not the database that does not answer
			unknown = err
		}
		if ctx.Err() != nil || time.Now().After(until) {
			if unknown != nil || left == 0 {
				return errors.Join(fmt.Errorf("pool %s is frozen, but what is still running there is unknown; run this again to keep waiting", pool), unknown)
			}
			return fmt.Errorf("pool %s is frozen, but jobs of %s are still running there; see tenure jobs list --state running --pool %s; run this again to keep waiting", pool, plural.Count(left, "claim", "claims"), pool)
		}
		select {
		case <-ctx.Done():
		case <-time.After(drainLook):
		}
	}
}

// silence is at how many looks in a row the heartbeats of sessions stood still.
type silence map[string]heartbeat

type heartbeat struct {
	number int64
	still  int // looks
}

// dead takes in a look at a session, and tells whether it has ended: it was declared dead,
// or what the lock's holder would declare it dead for was seen here. That it looks expired
// is not enough: after an outage of the database every session does. Looks are counted, and
// not the time, because while there is none the database may be away for everybody.
func (s silence) dead(c *shownSession, ttl time.Duration) bool {
	last, seen := s[c.Session]
	if seen && last.number == c.Beat {
		last.still++
	} else {
		last = heartbeat{number: c.Beat}
	}
	s[c.Session] = last
	still, own := time.Duration(last.still)*drainLook, time.Duration(c.TTLMS)*time.Millisecond
	switch {
	case c.State != "live" && c.State != "expired", still >= 3*max(ttl, own): // the database's clock may have been set back, and then it does not count for ever
		return true
	case ttl == 0: // the nodes' configuration is not known
		ttl = own
	}
	return c.State == "expired" && still >= ttl
}

// shownLock is an acquire lock as the API answers it.
type shownLock struct {
	Pool, Holder, Node string
	Answers, Frozen    bool
	Since              time.Time
	ReservedFor        string  `json:"reserved_for"`
	Remaining          float64 `json:"remaining_seconds"`
	Timeline           int32
	TimelineRefused    string `json:"timeline_refused"`
}

func (l *shownLock) member() string {
	switch {
	case !l.Answers:
		return "unknown"
	case l.Holder != "":
		return l.Holder
	case l.ReservedFor != "":
		return "reserved for " + l.ReservedFor
	}
	return "nobody"
}

func (l *shownLock) left() string {
	left := time.Duration(l.Remaining * float64(time.Second)).Round(100 * time.Millisecond)
	switch {
	case l.Holder == "":
		return ""
	case left <= 0:
		return "expired"
	}
	return left.String()
}

func (l *shownLock) timeline() string {
	switch {
	case l.Timeline != 0:
		return strconv.Itoa(int(l.Timeline))
	case l.Answers:
		return "constant"
	}
	return ""
}

// showLocks says besides what a timeline that cannot be read means for the pools that have one.
func showLocks(r *answer) error {
	if r.format() == asJSON {
		return printJSON(r.a.stdout, r.body)
	}
	var all struct{ Items []shownLock }
	if err := r.readInto(&all); err != nil {
		return err
	}
	var constant []string
	for _, l := range all.Items {
		if l.timeline() == "constant" {
			constant = append(constant, fmt.Sprintf("%s (%s)", l.Pool, clean(l.TimelineRefused)))
		}
	}
	err := r.printTable()
	if len(constant) > 0 {
		err = errors.Join(err, say(r.a, "\nconstant: the server does not let its timeline be read, so nobody here notices a primary that was replaced, and its storage has to refuse that one's writes: "+strings.Join(constant, ", ")))
	}
	return err
}

// showNodes puts the sessions of each process together, the oldest process of a node last.
func showNodes(r *answer) error {
	if r.format() == asJSON {
		return printJSON(r.a.stdout, r.body)
	}
	var all struct{ Items []shownSession }
	if err := r.readInto(&all); err != nil {
		return err
	}
	var nodes []*shownSession
	pools := map[string][]string{}
	at := map[string]*shownSession{}
	for _, n := range all.Items {
		pools[n.Member] = append(pools[n.Member], n.Pool)
		if known := at[n.Member]; known != nil {
			known.Claims += n.Claims
			if n.LastSeen.After(known.LastSeen) {
				known.LastSeen = n.LastSeen
			}
			continue
		}
		at[n.Member] = &n
		nodes = append(nodes, &n)
	}
	slices.SortStableFunc(nodes, func(a, b *shownSession) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), b.LastSeen.Compare(a.LastSeen))
	})
	var rows [][]string
	for _, n := range nodes {
		slices.Sort(pools[n.Member])
		rows = append(rows, []string{n.Node, n.Member, n.Version, strings.Join(slices.Compact(pools[n.Member]), ","), n.NodeState, r.a.now.stamp(n.LastSeen), strconv.Itoa(n.Claims), strconv.Itoa(len(n.Kinds))})
	}
	return printTable(r.a.stdout, []string{"NODE", "MEMBER", "VERSION", "POOLS", "STATE", "LAST SEEN", "CLAIMS", "KINDS"}, rows)
}

// errUnhealthy is why tenure doctor exits with 1.
var errUnhealthy = errors.New("there is something to mend: do what it says, and run this again")

func showExamination(r *answer) error {
	var found operate.Examination
	err := r.readInto(&found)
	if err == nil && r.format() == asJSON {
		err = printJSON(r.a.stdout, r.body)
	} else if err == nil {
		err = printFindings(r.a.stdout, found)
	}
	if err == nil && !found.Healthy() {
		err = errUnhealthy
	}
	return err
}

// printFindings prints findings for people: one after another, as their texts are long.
func printFindings(w io.Writer, e operate.Examination) error {
	var b strings.Builder
	for _, f := range e.Findings {
		severity := paint(w, colours[string(f.Severity)], strings.ToUpper(string(f.Severity)))
		where := f.Where()
		if where != f.Check {
			where += ": " + f.Check
		}
		fmt.Fprintf(&b, "%s  %s: %s\n  why:  %s\n  mend: %s\n\n", severity, where, clean(f.Text()), clean(f.Why), clean(f.Mend))
	}
	b.WriteString(e.Summary())
	_, err := fmt.Fprintln(w, b.String())
	return err
}
