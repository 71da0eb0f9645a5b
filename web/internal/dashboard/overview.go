package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tenurehq/tenure/operate"
)

// problem is something that somebody should look at.
type problem struct {
	rank     int   // of its sort; the least is the worst
	size     int64 // among those of its sort
	Severity string
	Text     string
	To       string // where more is said
	Pairs    []any  // parameters of that
}

// poolRow is a pool with all that is known of it.
type poolRow struct {
	Name, State string
	Why         string             // why it cannot be used
	Lock        operate.LockStatus // zero: unknown
	Load        *operate.PoolLoad  // nil: unknown, or not to be told
	Sessions    []operate.SessionStatus
	Changes     []operate.LockChange // of the lock, the newest first
	Elected     string
	Holder      string // the node that holds the lock; "": nobody
}

// holds says whether a session has the pool's lock, which nobody has in a frozen one.
func (p *poolRow) holds(s *operate.SessionStatus) bool {
	return p.Lock.Holder != "" && p.Lock.Remaining > 0 && !p.Lock.Frozen && s.ID == p.Lock.Session
}

type overviewBody struct {
	Problems []problem
	Pools    []poolRow
	Known    bool // some pool has answered, so that Totals are of something
	Totals   operate.PoolLoad
	Failing  string // the share of runs that failed of late; "": none has ended
	Whole    bool   // jobs of all tenants may be counted
	Tenants  []tenantRow
	Charts   []chart
}

func overviewPage(v *visit) (view, error) {
	body := overviewBody{Whole: v.grant.SeesTenant("")}
	if body.Whole {
		body.Pools = v.readPools()
	} else {
		body.Tenants = explainTenants(v, grantedTenants(v))
	}
	var works []operate.PoolFindings
	var ended, failed float64 // runs in a second
	for _, p := range body.Pools {
		body.Problems = append(body.Problems, problemsOf(p)...)
		g := v.seen[p.Name]
		if body.Whole && p.Load != nil {
			v.missing(p.Name, g.missed)
			works = append(works, g.found)
		}
		if l := p.Load; l != nil {
			body.Known = true
			t := &body.Totals
			t.Waiting, t.Running, t.Timers, t.Awaiting, t.External = t.Waiting+l.Waiting, t.Running+l.Running, t.Timers+l.Timers, t.Awaiting+l.Awaiting, t.External+l.External
			if l.Waiting > 0 {
				t.Oldest = max(t.Oldest, l.Oldest)
			}
			well, badly, _ := g.perSecond()
			ended, failed = ended+well+badly, failed+badly
			t.Suspended, t.Dead, t.Kept = t.Suspended+l.Suspended, t.Dead+l.Dead, t.Kept+l.Kept
		}
	}
	for _, f := range operate.MergeFindings(works) {
		body.Problems = append(body.Problems, problemOf(f))
	}
	body.Failing = percent(failed, ended)
	if v.unlimited() { // they are of all pools together
		body.Charts = newCharts(v.looker.points(v.seen))
	}
	slices.SortStableFunc(body.Problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.size, a.size))
	})
	return view{Page: "overview", Title: "Overview", Body: body}, nil
}

func poolsPage(v *visit) (view, error) {
	if err := v.ofAll(); err != nil {
		return view{}, err
	}
	return view{Page: "pools", Title: "Pools", Body: v.readPools()}, nil
}

// readPools is what is known of the pools that the visitor may see. How many jobs there are in them is
// not told to who may see only some tenants'.
func (v *visit) readPools() (rows []poolRow) {
	v.seen = v.looker.look(v.Context())
	unfit := v.op.Pools().Unfit()
	for _, name := range v.pools("") {
		g := v.seen[name]
		row := poolRow{Name: name, Elected: v.op.Pools().Elected(name)}
		if g.seen != nil && g.err == nil {
			row.Lock, row.Sessions, row.Changes = g.seen.Lock, g.seen.Sessions, g.seen.Changes
			row.Holder = holderOf(g.seen)
			if len(v.grant.Tenants) == 0 {
				row.Load = &g.seen.Load
			}
			v.sawAt(g.begun)
		}
		row.State, row.Why = v.poolState(&row, g, unfit[name])
		rows = append(rows, row)
	}
	return rows
}

// holderOf is the holder's node; where only its session's member is known, that.
func holderOf(p *operate.PoolOverview) string {
	if p.Lock.Remaining <= 0 || p.Lock.Frozen {
		return ""
	}
	return cmp.Or(p.Load.Node, p.Lock.Holder)
}

func (v *visit) poolState(p *poolRow, g glance, unfit error) (state, why string) {
	switch {
	case unfit != nil:
		return "unfit", v.reasonOf(unfit)
	case g.begun.IsZero():
		return "unknown", "it has not answered within two seconds, and was not asked in the ten before"
	case g.err != nil:
		return "down", v.reasonOf(g.err)
	case p.Lock.Frozen:
		return "frozen", ""
	case p.Holder == "":
		return "no holder", ""
	default:
		return "up", ""
	}
}

// problemsOf is what is wrong with a pool.
func problemsOf(p poolRow) (out []problem) {
	add := func(rank int, size int64, severity, text, to string, pairs ...any) {
		out = append(out, problem{rank, size, severity, text, to, pairs})
	}
	switch p.State {
	case "unknown":
		add(3, 0, "warning", "How pool "+p.Name+" stands is not known: "+p.Why, "/pools")
	case "down":
		add(0, 0, "error", "Pool "+p.Name+" does not answer: "+p.Why, "/pools")
	case "unfit":
		add(1, 0, "error", "Pool "+p.Name+" cannot be used: "+p.Why, "/pools")
	case "no holder":
		add(2, 0, "error", "No node holds the acquire lock of pool "+p.Name+": its jobs do not start", "/cluster")
	}
	if p.Load == nil {
		return out
	}
	if n := p.Load.Dead; n > 0 {
		add(3, n, "warning", fmt.Sprintf("%s in %s", plural(n, "dead letter"), p.Name), "/dead", "pool", p.Name)
	}
	return out
}

// problemOf is what the doctor calls wrong with the work of pools.
func problemOf(f operate.Finding) problem {
	p := problem{rank: map[string]int{"error": 2, "warning": 3}[string(f.Severity)], Severity: string(f.Severity), To: "/jobs"}
	if p.rank == 0 {
		p.rank = 5 // it may be meant
	}
	where := strings.Join(f.Pools, ", ")
	if len(f.Pools) > 3 {
		where = fmt.Sprintf("%d pools", len(f.Pools))
	}
	p.Text = f.What + " (" + where + ")"
	a := f.About
	switch {
	case a.Job != "":
		p.To = "/jobs/" + a.Job
	case a.Tenant != "" && a.State == "":
		p.To, p.Pairs = "/tenant", []any{"id", a.Tenant}
	case f.Check == "lock" || f.Check == "nodes":
		p.To = "/cluster"
	default:
		p.Pairs = []any{"tenant", a.Tenant, "queue", a.Queue, "kind", a.Kind, "state", a.State}
		if len(f.Pools) == 1 {
			p.Pairs = append(p.Pairs, "pool", f.Pools[0])
		}
	}
	return p
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return bounded(n) + " " + what + "s"
}
