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

	"github.com/spf13/cobra"

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

var tenantCommands = []spec{
	{
		name: "tenants list", short: "List the tenants of every pool", forms: list("/tenants"),
		long: "Lists the tenants under tenants.static, those that tenants.table.list names, those with unfinished\n" +
			"jobs, and those that were frozen or moved, or have a weight. States: active, frozen, moving (about to move to the other pool), held\n" +
			"(moving, while its own data is being copied), moved (lives in the other pool), arriving\n" +
			"(about to come from it), stray (lives elsewhere, but has jobs here that do not run;\n" +
			"move it to where it lives), and unknown: has jobs here, but no routing rule knows it.",
		columns: "tenant pool state weight other_pool=other",
	},
	{
		name: "tenants busy", short: "List the tenants whose jobs wait, those with the most first", forms: list("/busy-tenants"),
		long:    "Jobs that wait for their time do not count. Where some ten thousand wait in a pool, it is an estimate.",
		flags:   []flag{poolFlag("only of this `pool`"), flagOf("limit", 20, "how many at most").by(between(1, 1000))},
		columns: "tenant pool waiting oldest=oldest_seconds",
		cells:   map[string]cell{"oldest": of(func(_ *app, t *shownQueue) string { return t.oldest() })},
	},
	{
		name: "tenants why", args: "TENANT", short: "Say why a tenant's work waits, and what to do about it", forms: []form{{method: http.MethodGet, path: "/tenants/{tenant}/why", args: "tenant"}},
		long: "The first reason that is true, as the ledger of the tenant's pool has it. What only the node\n" +
			"knows that holds the pool's lock is told as waiting for its turn.",
		show: showWhy,
	},
	{
		name: "tenants freeze", args: "TENANT", short: "Start no jobs of a tenant until it is thawed; running jobs continue",
		forms: put(http.MethodPost, "/tenants/{tenant}/freeze", "tenant", ""), said: done("tenant", "is frozen; thaw it with: tenure tenants thaw %s"),
	},
	{
		name: "tenants thaw", args: "TENANT", short: "Let a frozen tenant's jobs run again",
		forms: put(http.MethodPost, "/tenants/{tenant}/thaw", "tenant", ""), said: done("tenant", "is thawed"),
	},
	{
		name: "tenants limit", args: "TENANT", hint: "[--max-running N] [--max-waiting N]", short: "Bound how many of a tenant's jobs run at a time, on all nodes together, and how many may wait",
		long: "In force within a second. Jobs that are running beyond it go on; those that are claimed and\n" +
			"wait for a worker count as running. While --max-waiting jobs wait or run, more are refused; the\n" +
			"holder of the pool's lock looks once a second, so that some more may come in. The limits are kept\n" +
			"with the tenant, and move with it.",
		flags: []flag{flagOf("max-running", 0, "1 or more; 0: any number, as at first").by(anyNumber), flagOf("max-waiting", 0, "1 or more; 0: any number, as at first").by(anyNumber)},
		rules: func(cmd *cobra.Command) { cmd.MarkFlagsOneRequired("max-running", "max-waiting") },
		forms: put(http.MethodPut, "/tenants/{tenant}/limits", "tenant", "*"),
		said: func(r *answer) string {
			var said []string
			for _, what := range []string{"running", "waiting"} {
				n, _ := r.cmd.Flags().GetInt("max-" + what)
				switch {
				case !r.given("max-" + what):
				case n == 0:
					said = append(said, "may have any number of jobs "+what)
				case what == "running":
					said = append(said, "may have "+plural.Count(n, "job", "jobs")+" running at a time")
				default:
					said = append(said, "may have "+plural.Count(n, "job", "jobs")+" waiting")
				}
			}
			return "tenant " + r.arg + " " + strings.Join(said, ", ")
		},
	},
	{
		name: "tenants weight", args: "TENANT N", short: "Give a tenant more of the workers than others of its pool, in proportion",
		long: "Of two tenants that have much to do, one of weight 3 has three times as much of the workers as\n" +
			"one of weight 1, which is what a tenant has at first. In force within a second, for what waits\n" +
			"already, too. It is kept with the tenant, and moves with it.",
		forms: put(http.MethodPut, "/tenants/{tenant}/weight", "tenant weight", ""),
		said:  func(r *answer) string { return "tenant " + r.args[0] + " has weight " + r.args[1] },
	},
	{
		name: "tenants clear", args: "TENANT", short: "Delete the schedules and dead letters of a tenant that has left, and cancel its jobs",
		long: "For a tenant that no routing rule knows any more: take it out of the configuration or the table first, so\n" +
			"that nothing adds jobs for it. Finished jobs, the cancelled among them, go after execution.retention. Its\n" +
			"schema is yours to drop, once this has ended. Whatever interrupts the command, run it again.",
		check: func(q *question) error {
			if err := checkTenant(q.args[0]); err != nil {
				return &usageError{err}
			}
			return nil
		},
		run: clearTenant, limit: manyLimit,
	},
	{
		name: "tenants reassign", args: "TENANT", hint: "--to TENANT", short: "Give the jobs of a tenant that no routing rule knows to another tenant",
		long: "For jobs that SQL has added for a mistyped tenant. Those in the pool of the other tenant go to\n" +
			"the end of its queues; dead letters and what is for later come along. What is in flight, what is encrypted, and\n" +
			"what has a unique key that the other tenant has stays. To end them instead: tenure tenants clear TENANT.",
		flags: []flag{textFlag("to", "the `tenant` that gets them").by(checked(checkTenant))},
		rules: func(cmd *cobra.Command) { _ = cmd.MarkFlagRequired("to") }, // fails for a flag that does not exist
		forms: put(http.MethodPost, "/tenants/{tenant}/reassign", "tenant", "to"),
		said: func(r *answer) string {
			var n struct{ Reassigned, Left int }
			_ = r.readInto(&n) // what cannot be read says nothing
			return fmt.Sprintf("%s of tenant %s %s tenant %s's now, %s left", plural.Count(n.Reassigned, "job", "jobs"), r.arg, plural.Which(n.Reassigned, "is", "are"), r.text("to"), plural.Count(n.Left, "is", "are"))
		},
	},
}

// ofWhom looks whether flags say whose a schedule or limit is.
func ofWhom(q *question) error {
	if err := checkTenant(q.text("tenant")); !q.given("every-tenant") && err != nil {
		return usagef("--tenant: %w: name the tenant, or pass --every-tenant", err)
	}
	return nil
}

var limitFlags = []flag{
	textFlag("tenant", "the tenant that has the limit"), flagOf("every-tenant", false, "each tenant has such a limit, unless one is set for itself"),
	textFlag("kind", "only for its jobs of this `kind`"), textFlag("queue", "only for its jobs on this `queue`"),
	textFlag("key", "only for its jobs with this exclusive `key`"), flagOf("each-key", false, "each of its exclusive keys has such a limit, unless one is set for that key"),
}

func limitRules(cmd *cobra.Command) {
	cmd.MarkFlagsMutuallyExclusive("tenant", "every-tenant")
	cmd.MarkFlagsMutuallyExclusive("kind", "queue", "key", "each-key")
}

var limitCommands = []spec{
	{
		name: "limits list", short: "List the limits of every pool", forms: list("/limits"),
		long: "Those that all tenants have together come first, by pool with its share of the whole, as the configuration has\nthem; then those for every tenant, and each tenant's own. RUNNING counts what is in flight:\nclaimed jobs that wait for a worker, too. NEXT: when the rate lets the next job start.\n" +
			"MAX WAITING: how many of the tenant's jobs may wait or run before more are refused, as tenure tenants limit sets it.",
		columns: "tenant queue kind key max_running running rate burst next=next_start max_waiting pool",
		cells: map[string]cell{
			"tenant": of(func(_ *app, l *shownLimit) string { return l.whose() }), "key": of(func(_ *app, l *shownLimit) string { return l.key() }),
			"max_running": of(func(_ *app, l *shownLimit) string { return l.most() }), "running": of(func(_ *app, l *shownLimit) string { return l.running() }),
			"rate": of(func(_ *app, l *shownLimit) string { return l.rate() }), "burst": of(func(_ *app, l *shownLimit) string { return some(l.Burst) }), "max_waiting": of(func(_ *app, l *shownLimit) string { return some(l.MaxWaiting) }), "next": when("next_start"),
		},
	},
	{
		name: "limits set", hint: "--tenant TENANT [--kind KIND | --queue QUEUE | --key KEY] [--max-running N] [--rate N --per PERIOD]", short: "Set a limit in the place of the one there was",
		long: "On all nodes together. Without --kind, --queue and --key it is for all of the tenant's jobs. In force\n" +
			"from the next claim on, for what waits already, too; what is running beyond it goes on. A limit is kept\n" +
			"with its tenant, and moves with it. A job must pass all limits that apply to it. Of an exclusive key\n" +
			"there is a rate only: of its jobs one runs at a time in any case.",
		example: "  tenure limits set --tenant acme --kind invoice.send --max-running 4\n" +
			"  tenure limits set --every-tenant --queue mail --rate 100 --per 1m --burst 10\n" +
			"  tenure limits set --tenant acme --each-key --rate 1 --per 5s",
		flags: append(slices.Clone(limitFlags), flagOf("max-running", 0, "so many jobs at a time (default any number)"), flagOf("rate", 0, "so many starts in each period (default any number)"),
			flagOf("per", time.Duration(0), "the period of --rate (default 1s)").as("per_ms").by(upToADay(inMS(1))), flagOf("burst", 0, "so many starts at once after a pause (default 1)")),
		rules: func(cmd *cobra.Command) { limitRules(cmd); cmd.MarkFlagsOneRequired("max-running", "rate") }, check: ofWhom,
		forms: put(http.MethodPut, "/limits", "", "*"), handled: true, said: func(r *answer) string { return "the limit of " + limitTyped(r.question) + " is set" },
	},
	{
		name: "limits delete", hint: "--tenant TENANT [--kind KIND | --queue QUEUE | --key KEY]", short: "Lift a limit",
		long:  "Of a tenant's own limit, one for every tenant takes the place, if there is one.",
		flags: limitFlags, rules: limitRules, check: ofWhom,
		forms: put(http.MethodDelete, "/limits", "", "*"), said: func(r *answer) string { return "the limit of " + limitTyped(r.question) + " is lifted" }, absent: "see: tenure limits list",
	},
}

// limitTyped says in a few words what a limit is about.
func limitTyped(q *question) string {
	out := "every tenant"
	if !q.given("every-tenant") {
		out = q.text("tenant")
	}
	switch {
	case q.given("kind"):
		out += " for kind " + q.text("kind")
	case q.given("queue"):
		out += " for queue " + q.text("queue")
	case q.given("key"):
		out += fmt.Sprintf(" for exclusive key %q", q.text("key"))
	case q.given("each-key"):
		out += " for each exclusive key"
	}
	return out
}

// shownLimit is a limit as the API answers it.
type shownLimit struct {
	Tenant, Key          string
	EveryTenant          bool `json:"every_tenant"`
	AllTenants           bool `json:"all_tenants"`
	EachKey              bool `json:"each_key"`
	MaxRunning           int  `json:"max_running"`
	MaxWaiting           int  `json:"max_waiting"`
	Running, Rate, Burst int
	PerMS                int64 `json:"per_ms"`
	Whole                *struct {
		MaxRunning int `json:"max_running"`
		Rate       int
		PerMS      int64 `json:"per_ms"`
	}
}

// some is a number that says something if it is not 0.
func some(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func (l *shownLimit) whose() string {
	if l.AllTenants {
		return "(all together)"
	}
	return cmp.Or(l.Tenant, "(every tenant)")
}

func (l *shownLimit) key() string {
	if l.EachKey {
		return "(each)"
	}
	return l.Key
}

func (l *shownLimit) most() string {
	switch {
	case l.MaxRunning < 0:
		return "none here"
	case l.Whole != nil && l.Whole.MaxRunning > 0:
		return fmt.Sprintf("%d of %d", l.MaxRunning, l.Whole.MaxRunning)
	}
	return some(l.MaxRunning)
}

func (l *shownLimit) running() string {
	if l.EveryTenant || l.key() != "" {
		return ""
	}
	return strconv.Itoa(l.Running)
}

func (l *shownLimit) rate() string {
	if l.Rate == 0 {
		return ""
	}
	out := fmt.Sprintf("%d per %v", l.Rate, time.Duration(l.PerMS)*time.Millisecond)
	if l.Whole != nil && l.Whole.Rate > 0 {
		out += fmt.Sprintf(" of %d per %v", l.Whole.Rate, time.Duration(l.Whole.PerMS)*time.Millisecond)
	}
	return out
}
