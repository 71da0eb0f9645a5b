package dashboard

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure/operate"
)

// cell is a node in a pool.
type cell struct {
	State   string // of its session; "": it has none
	Holder  bool
	Elected bool
	Fresh   bool // it has held the lock for a moment only
	Colour  int  // of the node
	Since   time.Time
	Claims  int
}

type clusterRow struct {
	Pool  poolRow
	Cells []cell
}

// column is a node on the map.
type column struct {
	Node   string
	Colour int
}

type clusterBody struct {
	Nodes   []column
	Rows    []clusterRow
	History history
}

// freshFor is for how long a lock that has changed hands stands out.
const freshFor = 10 * time.Second

func clusterPage(v *visit) (view, error) {
	if err := v.ofAll(); err != nil {
		return view{}, err
	}
	pools := v.readPools()
	live := v.liveNodes()
	nodes := nodesOf(pools, live)
	body := clusterBody{History: newHistory(pools, nodes, time.Now())}
	for _, n := range nodes {
		body.Nodes = append(body.Nodes, column{n, colourOf(n, nodes)})
	}
	for _, p := range pools {
		row := clusterRow{Pool: p}
		for _, n := range nodes {
			c := cell{Elected: p.Elected == n, Colour: colourOf(n, nodes)}
			// What a node left that has been started again is of no more interest, once others have its jobs.
			s := latest(p.Sessions, n)
			if again := live[n].Member; s != nil && (again == "" || again == s.Member || s.Claims > 0 || sessionState(s) == "live") {
				c.State, c.Claims = sessionState(s), s.Claims
				c.Holder = p.holds(s)
				c.Since, c.Fresh = p.Lock.TakenAt, c.Holder && time.Since(p.Lock.TakenAt) < freshFor
			}
			row.Cells = append(row.Cells, c)
		}
		body.Rows = append(body.Rows, row)
	}
	return view{Page: "cluster", Title: "Cluster map", Body: body}, nil
}

// liveNodes are the nodes that are alive, by their names, as far as the visitor may see
// nodes that have no session in a pool.
func (v *visit) liveNodes() map[string]operate.LiveNode {
	live := map[string]operate.LiveNode{}
	if len(v.grant.Pools) > 0 {
		return live
	}
	for _, n := range v.op.LiveNodes() {
		live[n.Name] = n
	}
	return live
}

func sessionState(s *operate.SessionStatus) string {
	switch {
	case s.Idle:
		return "idle"
	case s.State == "live" && s.Expired:
		return "lost"
	default:
		return s.State
	}
}

// latest is a node's newest session in a pool: one that was started again had others. Those that are there come
// first, as the clock may have been set back since an older one began.
func latest(sessions []operate.SessionStatus, node string) (last *operate.SessionStatus) {
	isThere := map[string]int{"live": 2, "idle": 1}
	for i := range sessions {
		s := &sessions[i]
		if s.Node == node && (last == nil || cmp.Or(cmp.Compare(isThere[sessionState(s)], isThere[sessionState(last)]), s.StartedAt.Compare(last.StartedAt)) > 0) {
			last = s
		}
	}
	return last
}

// nodesOf are the nodes that are there, or died and were not started again.
func nodesOf(pools []poolRow, live map[string]operate.LiveNode) []string {
	names := slices.Collect(maps.Keys(live))
	for _, p := range pools {
		for _, s := range p.Sessions {
			if sessionState(latest(p.Sessions, s.Node)) != "left" {
				names = append(names, s.Node)
			}
		}
		if p.Elected != "" {
			names = append(names, p.Elected)
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	slices.Sort(names)
	return names
}

// nodeRow is a node, with its sessions in all pools.
type nodeRow struct {
	Name, State, Version string
	Started, Seen        time.Time // Started: its first session of those that are known; zero: it has had none yet
	Pools, Holds, Kinds  []string
	Claims               int

	alive string // its process, as gossip knows it; "": it does not
}

func nodesPage(v *visit) (view, error) {
	if err := v.ofAll(); err != nil {
		return view{}, err
	}
	pools := v.readPools()
	rows := map[string]*nodeRow{}
	for name, n := range v.liveNodes() {
		rows[name] = &nodeRow{Name: name, State: "live", Version: n.Version, Seen: time.Now(), alive: n.Member}
	}
	for _, p := range pools {
		if p.Why != "" { // who works there is not known
			v.missing(p.Name, errors.New(p.Why))
		}
		for i := range p.Sessions {
			s := &p.Sessions[i]
			if rows[s.Node] == nil {
				rows[s.Node] = &nodeRow{Name: s.Node}
			}
			rows[s.Node].add(&p, s, latest(p.Sessions, s.Node).ID == s.ID)
		}
	}
	var all []nodeRow
	for _, row := range rows {
		slices.Sort(row.Kinds)
		row.Kinds = slices.Compact(row.Kinds)
		all = append(all, *row)
	}
	slices.SortFunc(all, func(a, b nodeRow) int { return strings.Compare(a.Name, b.Name) })
	return view{Page: "nodes", Title: "Nodes", Body: all}, nil
}

// add sums up what a node is in each pool: it is live if it is in one, or gossip says so. Of a process before the one
// that is alive only its claims count.
func (row *nodeRow) add(p *poolRow, s *operate.SessionStatus, newest bool) {
	if row.alive != "" && s.Member != row.alive {
		row.Claims += s.Claims
		return
	}
	if row.alive != "" && (row.Started.IsZero() || s.StartedAt.Before(row.Started)) {
		row.Started = s.StartedAt
	}
	if !newest {
		return
	}
	state := sessionState(s)
	if row.State == "" || state == "live" || s.LastSeen.After(row.Seen) && row.State != "live" {
		row.State, row.Version = state, s.Version
	}
	if row.alive == "" && s.LastSeen.After(row.Seen) {
		row.Seen, row.Started = s.LastSeen, s.StartedAt
	}
	if state == "live" {
		row.Pools = append(row.Pools, p.Name)
	}
	if p.holds(s) {
		row.Holds = append(row.Holds, p.Name)
	}
	row.Kinds, row.Claims = append(row.Kinds, s.Kinds...), row.Claims+s.Claims
}
