package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// compare finds what only several pools together show.
func compare(cfg config.Config, pools []*pool) (findings []Finding) {
	add := func(s Severity, check string, where []string, what, why, mend string) {
		findings = append(findings, Finding{Severity: s, Check: check, Pools: append([]string{}, where...), What: what, Why: why, Mend: mend})
	}
	members, versions, kinds := map[string]bool{}, map[string]bool{}, map[string]bool{}
	heard, silent := map[string]bool{}, time.Duration(0) // members that have missed no heartbeat in some pool; for how long the others have
	servers, rooms := map[string][]string{}, map[string]int{}
	numbers := map[int]string{}
	for _, p := range pools {
		for member, s := range p.live() {
			members[member] = true
			versions[s.Version] = true
			for _, k := range s.Kinds {
				kinds[k] = true
			}
			if s.Unseen < s.TTL/2 {
				heard[member] = true
			} else {
				silent = max(silent, s.Unseen)
			}
		}
		if p.server != "" {
			servers[p.server] = append(servers[p.server], p.name)
			rooms[p.server] = p.room
		}
		if other := numbers[p.number]; p.number > 0 && other != "" {
			add(Error, "ledger", []string{other, p.name}, fmt.Sprintf("they have the same number %d", p.number), "their job ids would collide, so nodes use only the older one",
				"they were migrated apart: make the newer one again in an empty database, with tenure migrate and a configuration that names all pools")
		}
		numbers[p.number] = p.name
	}
	nodes := max(cfg.Connections.Nodes, 1)
	if len(members) > nodes {
		alive := "are alive"
		if len(heard) < len(members) {
			alive += fmt.Sprintf(" or have died within the last %v", silent.Round(time.Second))
		}
		add(Warning, "configuration", nil, fmt.Sprintf("%d nodes %s, and connections.nodes is %d: %s", len(members), alive, nodes, some(slices.Sorted(maps.Keys(members)))),
			"each checks by that number whether the servers have connections for all", fmt.Sprintf("connections: {nodes: %d}", len(members)))
		nodes = len(members)
	}
	if len(members) > 1 && cfg.Cluster == nil {
		add(Error, "configuration", nil, fmt.Sprintf("%d nodes are alive, and the configuration has no cluster section: %s", len(members), some(slices.Sorted(maps.Keys(members)))),
			"nodes that do not gossip do not share the pools: one holds the locks, and the others do nothing until it dies", "cluster: {bind: 0.0.0.0:7946, join: [\"dns:NAME-OF-THE-NODES:7946\"], keys: [...]}, see deploy/node.yaml; make a key by: openssl rand -base64 32")
	}
	if len(versions) > 1 {
		add(Note, "nodes", nil, "nodes of several releases are alive: "+strings.Join(slices.Sorted(maps.Keys(versions)), ", "), "this is as it should be during an upgrade only", "restart those of the older release; tenure nodes lists them")
	}
	queues := map[string]bool{job.DefaultQueue: true}
	for _, p := range pools {
		for kind, queue := range p.queues { // also of nodes that have no session, as no pool needs them
			kinds[kind], queues[queue] = true, true
		}
	}
	unhandled := func(names []string, section, why string) {
		names = slices.DeleteFunc(names, func(k string) bool { return kinds[k] })
		if len(members) > 0 && len(names) > 0 {
			add(Warning, "configuration", nil, fmt.Sprintf("%s names %s that no node has a handler of: %s", section, plural.Which(len(names), "a kind", "kinds"), some(names)), why,
				"correct the name, or start a node with the handler")
		}
	}
	unhandled(slices.Clone(cfg.Encryption.Kinds), "encryption.kinds", "if it is mistyped, the arguments of the kind that was meant are stored as plain text")
	unhandled(slices.Sorted(maps.Keys(cfg.Limits.Kinds)), "limits.kinds", "if it is mistyped, nothing limits the kind that was meant")
	var scheduled []string
	for _, s := range cfg.Schedules {
		queues[s.Queue] = true
		if !s.External {
			scheduled = append(scheduled, s.Kind)
		}
	}
	strange := func(named []string, section string) {
		named = slices.DeleteFunc(named, func(q string) bool { return queues[q] })
		if len(members) > 0 && len(named) > 0 {
			add(Note, "configuration", nil, fmt.Sprintf("%s names %s: %s", section, plural.Which(len(named), "a queue that is no kind's", "queues that are no kind's"), some(named)),
				"if it is mistyped, it does nothing for the queue that was meant", "correct the name; or leave it, if jobs are enqueued there by name")
		}
	}
	strange(slices.Sorted(maps.Keys(cfg.Limits.Queues)), "limits.queues")
	strange(slices.Sorted(maps.Keys(cfg.Acquire.Queues.Weights)), "acquire.queues.weights")
	slices.Sort(scheduled)
	unhandled(slices.Compact(scheduled), "schedules", "the jobs that they add wait for ever")
	for _, server := range slices.Sorted(maps.Keys(servers)) {
		var short *store.PoolError
		if errors.As(cfg.Routing().CheckServer(servers[server], rooms[server], nodes), &short) {
			add(Error, "connections", servers[server], short.What, "pools that come last stay out of service, or nodes are refused when there is much to do", short.Fix)
		}
	}
	return slices.Concat(findings, compareFrozen(pools), compareCommon(pools), findStrays(pools))
}

// findStrays looks for tenants with jobs in a pool that no rule leads to, be it through pools that they have moved from.
func findStrays(pools []*pool) (findings []Finding) {
	rows := map[string]map[string]store.TenantRow{}
	for _, p := range pools {
		rows[p.name] = p.rows
	}
	for _, p := range pools {
		var strays, homes []string
		for _, id := range slices.Sorted(maps.Keys(p.led)) {
			home := p.led[id]
			for range pools {
				if row := rows[home][id]; row.State == store.TenantMoved {
					home = row.Other
				}
			}
			if rows[home] != nil && home != p.name && p.rows[id].State != store.TenantMoved { // else it is a finding already
				strays, homes = append(strays, id), append(homes, home)
			}
		}
		if len(strays) == 0 {
			continue
		}
		findings = append(findings, Finding{Severity: Error, Check: "jobs", Pools: []string{p.name}, About: About{Tenant: strays[0]},
			What: fmt.Sprintf("%s jobs here, and %s led to another pool, such as %s: %s", plural.Count(len(strays), "tenant has", "tenants have"), plural.Which(len(strays), "is", "are"), homes[0], some(strays)),
			Why:  "none of these jobs runs; freezing, thawing and limits act on the other pool alone", Mend: fmt.Sprintf("tenure tenants move %s --to %s brings them there; or correct the tenant's route", strays[0], homes[0])})
	}
	return findings
}

// compareFrozen says which queues and kinds are frozen.
func compareFrozen(pools []*pool) (findings []Finding) {
	for _, f := range findFrozen(pools) {
		about := About{Queue: f.Name}
		if f.Scope == store.ScopeKind {
			about = About{Kind: f.Name}
		}
		what := fmt.Sprintf("%s %s is frozen, since %s", f.Scope, f.Name, f.Since.UTC().Format(time.RFC3339))
		do := func(verb string) string { return fmt.Sprintf("tenure %ss %s %s", f.Scope, verb, f.Name) }
		one := Finding{Severity: Note, Check: "jobs", Pools: f.pools, What: what, Why: "none of its jobs is claimed until somebody thaws it", Mend: do("thaw"), About: about}
		if f.of > len(f.pools) {
			one.Severity, one.What = Warning, what+", and not in "+plural.Count(f.of-len(f.pools), "other pool", "other pools")
			one.Why, one.Mend = "its jobs are started there, such as in a pool that was added since", do("freeze")+", or "+do("thaw")
		}
		findings = append(findings, one)
	}
	return findings
}

// compareCommon finds what is set for every tenant in some pools, and not in others.
func compareCommon(pools []*pool) (findings []Finding) {
	var asked, all []string
	has := map[string][]string{} // pools, by what is set
	for _, p := range pools {
		if p.common == nil {
			continue
		}
		asked = append(asked, p.name)
		for _, what := range p.common {
			if has[what] == nil {
				all = append(all, what)
			}
			has[what] = append(has[what], p.name)
		}
	}
	slices.Sort(all)
	for _, what := range all {
		lack := slices.DeleteFunc(slices.Clone(asked), func(name string) bool { return slices.Contains(has[what], name) })
		if len(lack) > 0 {
			noun, _, _ := strings.Cut(what, " ")
			findings = append(findings, Finding{Severity: Warning, Check: "tenants", Pools: lack, What: fmt.Sprintf("the %s for every tenant is set in %s only", what, some(has[what])),
				Why: "tenants here do without it, such as in a pool that was added since", Mend: fmt.Sprintf("set it again, which reaches all pools: tenure %ss list shows it, tenure %ss set --every-tenant sets it", noun, noun)})
		}
	}
	return findings
}

// frozen is a queue or kind that is frozen in some pools, since when it was first, of those that were asked.
type frozen struct {
	store.Frozen
	pools []string
	of    int
}

func findFrozen(pools []*pool) (all []frozen) {
	asked := 0
	for _, p := range pools {
		if p.frozen == nil {
			continue
		}
		asked++
		for _, f := range p.frozen {
			i := slices.IndexFunc(all, func(o frozen) bool { return o.Scope == f.Scope && o.Name == f.Name })
			if i < 0 {
				i, all = len(all), append(all, frozen{Frozen: f})
			}
			all[i].pools = append(all[i].pools, p.name)
			if f.Since.Before(all[i].Since) {
				all[i].Since = f.Since
			}
		}
	}
	for i := range all {
		all[i].of = asked
	}
	return all
}
