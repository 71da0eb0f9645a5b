package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// overdue is how much later than it should something may happen before it is a finding: a fail-over
// takes less.
const overdue = time.Minute

// startWithin is how long a node may take to open a session in a pool that was idle.
const startWithin = 10 * time.Second

// late is from when on a job that waits is a warning: deploy/alerts.yaml has the same.
const late = 15 * time.Minute

// mostExamined is how many of the oldest jobs are read to see whether they can be, of those that wait, of timers
// and of those of external workers.
const mostExamined = 500

// checkSessions looks for sessions that are gone and whose jobs nobody has taken back, and for what keeps the workers of
// live ones.
func (p *pool) checkSessions(ctx context.Context, db store.DB) (err error) {
	if p.sessions, err = store.Sessions(ctx, db); err != nil {
		return err
	}
	if p.queues, err = store.KindQueues(ctx, db); err != nil {
		return err
	}
	for _, s := range p.sessions {
		if s.Claims > 0 && s.Unseen > s.TTL+overdue {
			p.add(Error, "nodes", fmt.Sprintf("session %s of node %s (member %s) has %s and was seen last %v ago", s.ID, s.Node, s.Member, plural.Count(s.Claims, "claim", "claims"), s.Unseen.Round(time.Second)),
				"its node is gone, and its jobs run again only when the holder of the pool's lock takes them back", "tenure locks --config "+p.file()+" says who holds it; if nobody does, start a node: tenure serve")
		}
	}
	busy, err := store.BusyNodes(ctx, db)
	for _, n := range busy {
		p.checkBusy(n)
	}
	return err
}

// checkBusy looks for handlers of a live node that do not return, and for runs that leave it no worker.
func (p *pool) checkBusy(n store.BusyNode) {
	where, b := fmt.Sprintf("node %s (member %s)", n.Node, n.Member), &n.Busy
	if stuck := b.Stuck(); len(stuck) > 0 {
		severity := Warning
		handlers := 0
		for _, k := range stuck {
			handlers += k.Stuck
		}
		what := fmt.Sprintf("on %s %s the end of %s context: %s", where, plural.Count(handlers, "handler ignores", "handlers ignore"), plural.Which(handlers, "its", "their"),
			sayKinds(stuck, func(k store.BusyKind) int { return k.Stuck }))
		why := fmt.Sprintf("other workers stand in for %d of them at most; beyond that each costs the node a worker", b.Workers)
		mend := fmt.Sprintf("have the handler return when its context ends: tenure jobs list --state running --kind %s names its jobs, and tenure jobs show ID --stack, on the node's machine, shows where it is", stuck[0].Kind)
		if b.Left > 0 {
			severity = Error
			what += fmt.Sprintf("; %s a worker each, of %d", plural.Count(b.Left, "of them keeps", "of them keep"), b.Workers)
			why = "the node runs fewer jobs, or none, until it is restarted, and its /healthz answers 503"
			mend = "restart the node, whose jobs then run again; and " + mend
		}
		p.add(severity, "nodes", what, why, mend)
		p.about(About{Kind: stuck[0].Kind, State: "running"})
	}
	if long := b.Long(); b.Full() && len(long) > 0 && slices.ContainsFunc(long, func(k store.BusyKind) bool { return p.now().Sub(k.Since) > overdue }) {
		p.add(Note, "nodes", fmt.Sprintf("%s has no worker left of %d%s; runs that keep them: %s", where, b.Workers, b.ForWhom(), LongRuns(b)),
			"it takes no such job until one of these runs ends", fmt.Sprintf("tenure jobs list --state running --kind %s names the jobs, and tenure jobs cancel ID asks a handler to end; if they are to take so long, more nodes or workers help", long[0].Kind))
		p.about(About{Kind: long[0].Kind, State: "running"})
	}
}

// LongRuns says of which kinds the runs are that keep a node's workers.
func LongRuns(b *store.Busy) string {
	return sayKinds(b.Long(), func(k store.BusyKind) int { return k.Runs })
}

func sayKinds(kinds []store.BusyKind, count func(store.BusyKind) int) string {
	said := make([]string, len(kinds))
	for i, k := range kinds {
		said[i] = fmt.Sprintf("%d of kind %s, since %s", count(k), k.Kind, k.Since.UTC().Format(time.RFC3339))
	}
	return strings.Join(said, "; ")
}

// live are the members whose sessions are in force.
func (p *pool) live() map[string]store.Session {
	members := map[string]store.Session{}
	for _, s := range p.sessions {
		if s.State == "live" && !s.Expired {
			members[s.Member] = s
		}
	}
	return members
}

// checkLock looks whether somebody holds the pool's lock, if there is something to do.
func (p *pool) checkLock(ctx context.Context, db store.DB) error {
	lock, err := store.ReadLock(ctx, db)
	if err != nil {
		return err
	}
	idle, err := store.LookIdle(ctx, db)
	if err != nil {
		return err
	}
	held := lock.Session != uuid.Nil && lock.Remaining > 0
	due := idle.Waiting || idle.Due != nil && *idle.Due < -overdue
	switch {
	case lock.Paused:
		p.add(Note, "lock", "the pool is frozen", "no job is claimed there until somebody thaws it", "tenure pools thaw "+p.name)
	case held || !due || lock.Quiet < lock.TTL+startWithin:
	case len(p.live()) == 0:
		p.add(Error, "lock", "jobs wait, and no node works on this pool", "none of them runs", "start a node whose configuration has this pool: tenure serve --config "+p.file())
	case lock.Quiet < lock.TTL+overdue:
	default:
		p.add(Error, "lock", fmt.Sprintf("jobs wait, and nobody holds the pool's acquire lock, although nodes live: %s", some(slices.Sorted(maps.Keys(p.live())))), "none of them runs",
			"the nodes' logs say why they do not take it; tenure locks shows whom it is reserved for")
	}
	return nil
}

// checkJobs looks for jobs that wait in vain, or run for too long.
func (p *pool) checkJobs(ctx context.Context, db store.DB) error {
	frozen, err := store.ListFrozen(ctx, db)
	if err != nil {
		return err
	}
	p.frozen = append([]store.Frozen{}, frozen...)
	common, err := store.ListCommon(ctx, db)
	if err != nil {
		return err
	}
	p.common = append([]string{}, common...)
	kinds, err := store.Unhandled(ctx, db)
	if err != nil {
		return err
	}
	if len(p.live()) > 0 { // else that is the finding
		p.unhandled = slices.Collect(maps.Keys(kinds))
		told, others := mostFirst(kinds)
		for _, kind := range told {
			p.add(Error, "jobs", fmt.Sprintf("%s of kind %s %s, and no live node has a handler for it", plural.Count(kinds[kind], "job", "jobs"), kind, plural.Which(kinds[kind], "waits", "wait")), "they wait for ever",
				fmt.Sprintf("start nodes that register the kind; or: tenure jobs cancel --kind %s, and tenure schedules delete, where tenure schedules list shows one that adds them", kind))
			p.about(About{Kind: kind, State: "waiting"})
		}
		if len(others) > 0 {
			p.add(Error, "jobs", fmt.Sprintf("jobs of %s wait, and no live node has a handler for %s: %s", plural.Count(len(others), "more kind", "more kinds"), plural.Which(len(others), "it", "them"), some(others)), "they wait for ever",
				"start nodes that register the kinds; or: tenure jobs cancel --kind "+others[0]+", and likewise for the others")
			p.about(About{State: "waiting"})
		}
	}
	left, err := store.LeftBehind(ctx, db)
	if err != nil {
		return err
	}
	for _, one := range left {
		p.add(Error, "jobs", fmt.Sprintf("jobs of tenant %s wait here, and it has moved to pool %s", one.Tenant, one.Other), "nobody claims them here",
			fmt.Sprintf("tenure tenants move %s --to %s", one.Tenant, one.Other))
		p.about(About{Tenant: one.Tenant, State: "waiting"})
	}
	if err := p.checkStanding(ctx, db); err != nil {
		return err
	}
	damaged, err := store.FindDamaged(ctx, db, mostExamined)
	if err != nil {
		return err
	}
	for _, one := range damaged[:min(len(damaged), mostListed)] {
		p.add(Error, "jobs", fmt.Sprintf("job %s of tenant %s cannot be read: %s", one.ID, one.Tenant, one.Damage), "it does not run, and the database's storage may be failing",
			"mend the database, and it runs; or: tenure jobs cancel "+one.ID.String())
		p.about(About{Job: one.ID.String()})
	}
	runs, err := store.LongRuns(ctx, db, p.cfg.Execution.Timeout, mostListed)
	for _, r := range runs {
		what := fmt.Sprintf("job %s (%s of %s) has been with node %s for %v", r.ID, r.Kind, r.Tenant, r.Node, r.Running.Round(time.Second))
		said := ", and has not said how far it is"
		if r.Said > 0 {
			said = fmt.Sprintf(", and said last how far it is %v ago", r.Said.Round(time.Second))
		}
		mend := fmt.Sprintf("tenure jobs show %s says how far it is; tenure jobs cancel %s asks its handler to end", r.ID, r.ID)
		switch {
		case r.Timeout == 0:
			p.add(Note, "jobs", what+fmt.Sprintf(", longer than execution.timeout of %v", p.cfg.Execution.Timeout)+said, "its kind may have a longer one; if not, its handler does not heed its context, and keeps a worker", mend)
		case r.Running > r.Timeout+overdue:
			p.add(Warning, "jobs", what+fmt.Sprintf(", longer than its timeout of %v", r.Timeout)+said, "its handler does not heed its context, and keeps a worker", mend)
		default:
			continue
		}
		p.about(About{Job: r.ID.String()})
	}
	return err
}

// newestDead is how many dead letters are looked at for their kinds.
const newestDead = 1000

// checkAside looks for what does not run until somebody says so: dead letters and paused schedules.
func (p *pool) checkAside(ctx context.Context, db store.DB) error {
	dead, err := store.CountDead(ctx, db)
	if err != nil {
		return err
	}
	kind, err := store.CommonestDead(ctx, db, newestDead)
	if err != nil {
		return err
	}
	if kind.Dead > 0 {
		what := plural.Count(max(dead, int64(kind.Of)), "dead letter", "dead letters") + ", of kind " + kind.Kind
		if kind.Dead < kind.Of {
			what += fmt.Sprintf(" %d of the newest %d", kind.Dead, kind.Of)
		}
		if kind.Last != nil {
			what += ", the last of which died at " + kind.Last.UTC().Format(time.RFC3339)
		}
		p.add(Note, "jobs", what, "they failed for good, and do not run again by themselves",
			fmt.Sprintf("tenure jobs dead --pool %s groups them by cause; mend that, then tenure jobs retry --pool %s --kind %s, or tenure jobs delete", p.name, p.name, kind.Kind))
		p.about(About{Kind: kind.Kind, State: "dead"})
	}
	paused, err := store.PausedSchedules(ctx, db)
	var names []string
	for _, s := range paused {
		name, since := s.Name+" of tenant "+s.Tenant, ""
		if s.Tenant == store.EveryTenant {
			name = s.Name + " of every tenant"
		}
		if s.At != nil {
			since = fmt.Sprintf(" (since %s, by %s)", s.At.UTC().Format(time.RFC3339), s.Who)
		}
		names = append(names, name+since)
	}
	if n := len(paused); n > 0 {
		whose := "--every-tenant"
		if id := paused[0].Tenant; id != store.EveryTenant {
			whose = "--tenant " + id
		}
		p.add(Note, "jobs", fmt.Sprintf("%s paused: %s", plural.Count(n, "schedule is", "schedules are"), some(names)), "no jobs are added until somebody resumes them", fmt.Sprintf("tenure schedules resume %s %s", paused[0].Name, whose))
	}
	return err
}

// manyRetrying is of how many jobs of a kind it is said that they fail: what all of them need may be down.
const manyRetrying = 100

// checkRetrying looks for kinds of which many jobs fail.
func (p *pool) checkRetrying(ctx context.Context, db store.DB) error {
	all, err := store.ListRetrying(ctx, db, manyRetrying)
	for _, r := range all[:min(len(all), mostListed)] {
		p.add(Warning, "jobs", fmt.Sprintf("%d jobs of kind %s have failed and are tried again, the next one at %s", r.Jobs, r.Kind, r.Next.UTC().Format(time.RFC3339)),
			"something that they need may be down; each waits longer than before, and dies in the end",
			fmt.Sprintf("tenure jobs list --state retrying --kind %s shows why they failed; once that is mended: tenure jobs retry --state retrying --kind %s --rate 50", r.Kind, r.Kind))
		p.about(About{Kind: r.Kind, State: "retrying"})
	}
	return err
}

// checkOldest looks for what waits for long, beside the jobs of kinds and tenants that are findings of their own: those could not start.
func (p *pool) checkOldest(ctx context.Context, db store.DB) error {
	oldest, err := store.OldestWaiting(ctx, db, p.unhandled, p.wayless)
	if err != nil {
		return err
	}
	if oldest.Waited > overdue {
		severity := Note
		if oldest.Waited > late {
			severity = Warning
		}
		p.add(severity, "jobs", fmt.Sprintf("the oldest job that waits, of kind %s in queue %s, could have started %v ago", oldest.Kind, oldest.Queue, oldest.Waited.Round(time.Second)),
			"there is more to do than is done, or something keeps it from starting", fmt.Sprintf("tenure jobs list --state waiting --queue %s --kind %s, and tenure jobs why ID", oldest.Queue, oldest.Kind))
		p.about(About{Queue: oldest.Queue, Kind: oldest.Kind, State: "waiting"})
	}
	return nil
}

// mostFirst are kinds, those with most jobs first: told are those of which each is a finding, as SQL can make up any number.
func mostFirst(jobs map[string]int) (told, others []string) {
	kinds := slices.SortedFunc(maps.Keys(jobs), func(a, b string) int { return cmp.Or(cmp.Compare(jobs[b], jobs[a]), cmp.Compare(a, b)) })
	n := min(len(kinds), mostListed)
	return kinds[:n], kinds[n:]
}

// checkStanding looks for tenants that are frozen or may have no more jobs waiting, for jobs that wait for long, and for topics of which no worker outside the cluster takes jobs.
func (p *pool) checkStanding(ctx context.Context, db store.DB) error {
	tenants, err := store.TenantRows(ctx, db)
	if err != nil {
		return err
	}
	var frozen []string
	p.rows = map[string]store.TenantRow{}
	for _, t := range tenants {
		p.rows[t.Tenant] = t
		if t.Frozen && t.State != store.TenantMoved {
			frozen = append(frozen, t.Tenant)
		}
	}
	switch len(frozen) {
	case 0:
	case 1:
		p.add(Note, "jobs", fmt.Sprintf("tenant %s is frozen", frozen[0]), "none of its jobs is claimed until somebody thaws it", "tenure tenants thaw "+frozen[0])
		p.about(About{Tenant: frozen[0]})
	default:
		p.add(Note, "jobs", fmt.Sprintf("%d tenants are frozen: %s", len(frozen), some(frozen)), "none of their jobs is claimed until somebody thaws them", "tenure tenants thaw "+frozen[0]+"; likewise for the others")
	}
	if err := p.checkMoves(ctx, db); err != nil {
		return err
	}
	full, err := store.FullTenants(ctx, db)
	if err != nil {
		return err
	}
	if len(full) > 0 {
		p.add(Warning, "jobs", fmt.Sprintf("%s as many jobs waiting as may: %s", plural.Count(len(full), "tenant has", "tenants have"), some(full)),
			"more of their jobs are refused, and are lost unless who adds them tries again", fmt.Sprintf("tenure tenants why %s says what they wait for; or have more wait: tenure tenants limit %s --max-waiting N", full[0], full[0]))
		p.about(About{Tenant: full[0], State: "waiting"})
	}
	topics, err := store.UntakenTopics(ctx, db)
	topics = slices.DeleteFunc(topics, func(t store.Topic) bool { return t.Oldest <= overdue })
	slices.SortStableFunc(topics, func(a, b store.Topic) int { return cmp.Compare(b.Oldest, a.Oldest) })
	for i, t := range topics {
		if i == mostListed {
			p.add(Warning, "jobs", fmt.Sprintf("jobs of %s wait for workers outside the cluster, for up to %v, and none has one locked", plural.Count(len(topics)-i, "more topic", "more topics"), t.Oldest.Round(time.Second)),
				"they wait until a worker asks for the topic", fmt.Sprintf("start the topics' workers, or look into their logs; tenure jobs list --kind %s, say", t.Name))
			p.about(About{State: "waiting"})
			break
		}
		p.add(Warning, "jobs", fmt.Sprintf("%s of topic %s %s for workers outside the cluster, the oldest for %v, and none has one locked", plural.Count(t.Jobs, "job", "jobs"), t.Name, plural.Which(t.Jobs, "waits", "wait"), t.Oldest.Round(time.Second)),
			"they wait until a worker asks for the topic", fmt.Sprintf("start its workers, or look into their logs; tenure jobs list --kind %s", t.Name))
		p.about(About{Kind: t.Name, State: "waiting"})
	}
	return err
}

// checkMoves looks for tenants that are on their way to another pool, or here, and for longer than a move takes that
// nothing holds up: held ones, and those whose command was interrupted.
func (p *pool) checkMoves(ctx context.Context, db store.DB) error {
	told := 0
	for _, id := range slices.Sorted(maps.Keys(p.rows)) {
		row := p.rows[id]
		moving := row.State == store.TenantMoving
		if !moving && row.State != store.TenantArriving || told == mostListed {
			continue
		}
		from, to, severity := p.name, row.Other, Warning
		what := fmt.Sprintf("tenant %s is being moved to pool %s", id, to)
		if !moving {
			from, to, severity = cmp.Or(row.Other, "others"), p.name, Note // the other pool knows since when
			what = fmt.Sprintf("tenant %s is being moved here from pool %s", id, from)
		}
		if row.Held {
			what += ", and is held so that its data can be copied"
		}
		if begun, err := store.Audit(ctx, db, store.AuditFilter{Tenant: id, Action: "tenant.move", Limit: 1}); err != nil {
			return err
		} else if moving && len(begun) > 0 {
			switch ago := p.now().Sub(begun[0].At); {
			case ago < overdue:
				continue
			case ago < late:
				severity = Note
			}
			what += fmt.Sprintf("; the last command for that was run at %s by %s", begun[0].At.UTC().Format(time.RFC3339), begun[0].Who)
		}
		told++
		mend := fmt.Sprintf("unless its command still runs, go on with: tenure tenants move %s --to %s", id, to)
		if moving {
			mend += fmt.Sprintf("; or give it up with: tenure tenants move %s --to %s", id, from)
		}
		p.add(severity, "jobs", what, "none of its jobs is claimed until it has arrived, or the move is given up", mend)
		p.about(About{Tenant: id})
	}
	return nil
}

// file is where the configuration is.
func (p *pool) file() string {
	if p.cfg.File != "" {
		return p.cfg.File
	}
	return "node.yaml"
}

// checkRoutes looks for jobs of tenants that no routing rule knows, as SQL can add them for whomever it names, or of which one says what cannot be.
func (p *pool) checkRoutes(ctx context.Context, db store.DB) error {
	found, err := store.TenantsWithJobs(ctx, db, mostAsked, nil)
	if err != nil {
		return err
	}
	p.led = map[string]string{}
	found = slices.DeleteFunc(found, func(id string) bool {
		t, static := p.cfg.Tenants.Static[tenancy.ID(id)]
		if static && t.Pool != p.name {
			p.led[id] = t.Pool
			p.wayless = append(p.wayless, id)
		}
		return static
	})
	found = found[:min(len(found), mostAsked)]
	named := p.listNamed()
	home, why, err := p.askRoutes(ctx, slices.Compact(slices.Sorted(slices.Values(slices.Concat(found, named)))))
	if err != nil {
		p.addTable(Error, "tenants.table cannot be asked", "jobs of tenants that it alone knows do not run, and cannot be enqueued", err)
		return nil
	}
	for _, at := range p.placed {
		if at.Err == nil && home[string(at.ID)] == "" {
			home[string(at.ID)] = at.Pool
		}
	}
	for _, id := range found {
		if at := home[id]; at != "" && at != p.name {
			p.led[id] = at
		}
		if why[id] != nil || p.led[id] != "" {
			p.wayless = append(p.wayless, id)
		}
	}
	var unknown []string
	told := 0
	for _, id := range found {
		var route *routing.RouteError
		switch {
		case errors.Is(why[id], tenancy.ErrUnknownTenant):
			unknown = append(unknown, id)
		case errors.As(why[id], &route) && told < mostListed:
			told++
			p.add(Error, "jobs", fmt.Sprintf("tenant %s has jobs here, and its route cannot be used: %v", id, route), "none of its jobs runs", fmt.Sprintf("correct its route; or: tenure jobs cancel --tenant %q", id))
			p.about(About{Tenant: id})
		}
	}
	named = slices.DeleteFunc(named, func(id string) bool { return !errors.Is(why[id], tenancy.ErrUnknownTenant) })
	if len(named) > 0 {
		p.add(Error, "tenants", fmt.Sprintf("schedules or encryption.tenants of the configuration name %s that no routing rule knows: %s", plural.Count(len(named), "tenant", "tenants"), some(named)), "their schedules add no jobs, and a name that is mistyped leaves the tenant that was meant without keys of its own",
			"add the tenants to tenants.static or to the table, or remove them under schedules and encryption.tenants")
	}
	if len(unknown) > 0 {
		p.add(Error, "jobs", fmt.Sprintf("%s jobs here, and no routing rule knows %s: %s", plural.Count(len(unknown), "tenant has", "tenants have"), plural.Which(len(unknown), "it", "them"), some(unknown)), "none of their jobs runs",
			fmt.Sprintf("add them to tenants.static or to the table; or: tenure tenants reassign %q --to TENANT; or: tenure tenants clear %q", unknown[0], unknown[0]))
		p.about(About{Tenant: unknown[0]})
	}
	return nil
}

// listNamed lists, for the pool that has the lookup table, the tenants with schedules or keys of the configuration that only
// the table can know.
func (p *pool) listNamed() (ids []string) {
	if table := p.cfg.Tenants.Table; table == nil || table.Pool != p.name {
		return nil
	}
	names := slices.Collect(maps.Keys(p.cfg.Encryption.Tenants))
	for _, s := range p.cfg.Schedules {
		names = append(names, s.Tenants...)
	}
	for _, id := range names {
		if _, static := p.cfg.Tenants.Static[id]; !static {
			ids = append(ids, string(id))
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	return ids[:min(len(ids), mostAsked)]
}

// addTable adds a finding about the lookup table, which said err.
func (p *pool) addTable(severity Severity, what, why string, err error) {
	mend := "correct tenants.table, or look after the database of pool " + p.cfg.Tenants.Table.Pool
	if denied := (*routing.TableError)(nil); errors.As(err, &denied) {
		err, mend = errors.Unwrap(denied), denied.Mend
	}
	p.add(severity, "tenants", what, why, mend)
	p.addSaid(err)
}

// askRoutes says where tenants live, which are not static ones, as far as the process knows, and why they find no way. An error means that the table cannot be asked: also of
// its own pool, for nobody in particular.
func (p *pool) askRoutes(ctx context.Context, tenants []string) (home map[string]string, why map[string]error, err error) {
	home, why = map[string]string{}, map[string]error{}
	within := tableWithin
	if until, ok := ctx.Deadline(); ok {
		within = time.Until(until) / 2 // what comes after is to be looked at, too
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	switch table := p.cfg.Tenants.Table; {
	case !p.connects:
	case table == nil:
		for _, id := range tenants {
			why[id] = tenancy.ErrUnknownTenant
		}
	case len(tenants) > 0 || table.List != "" || table.Pool == p.name:
		if err := p.askTable(ctx, tenants, why); err != nil {
			return nil, nil, err
		}
	}
	for _, id := range tenants {
		if p.resolve != nil && why[id] == nil { // which knows of moves, too
			home[id], why[id] = p.resolve(ctx, tenancy.ID(id))
		}
	}
	return home, why, nil
}

// mostAsked bounds how many tenants the lookup table is asked for at a time.
const mostAsked = 1000

// askTable asks the lookup table as a node would for these tenants, and for those that it lists here.
func (p *pool) askTable(ctx context.Context, tenants []string, why map[string]error) error {
	table, err := p.cfg.Routing().ConnectTable(ctx)
	if err != nil {
		return err
	}
	defer closeSoon(ctx, table)
	query, rest := table.Check(ctx)
	if query != nil {
		return query
	}
	listed := []tenancy.ID(nil)
	if rest != nil {
		p.addTable(Warning, "tenants.table cannot be asked for all that it is configured for", "tenants are not listed, or cannot be moved", rest)
	} else if listed, err = table.List(ctx, p.name); err != nil {
		return err
	}
	asked := map[tenancy.ID]bool{}
	ids := []tenancy.ID{} // those with jobs first, which must be answered
	for _, id := range tenants {
		asked[tenancy.ID(id)] = true
		ids = append(ids, tenancy.ID(id))
	}
	for _, id := range listed {
		if _, static := p.cfg.Tenants.Static[id]; !static && !asked[id] {
			asked[id] = true
			ids = append(ids, id)
		}
	}
	for some := range slices.Chunk(ids, mostAsked) {
		placed, err := table.Ask(ctx, some)
		if err != nil && len(p.placed) >= len(tenants) && ctx.Err() != nil {
			p.add(Note, "tenants", fmt.Sprintf("of %d tenants here that tenants.table knows, there was time to look at %d", len(ids), len(p.placed)), "what is wrong with the others' rows stays unknown", "tenure doctor --within 1m")
			break
		}
		if err != nil {
			return err
		}
		p.placed = append(p.placed, placed...)
	}
	for i := range tenants {
		why[tenants[i]] = p.placed[i].Err
	}
	p.checkRows(p.placed[len(tenants):])
	return nil
}

// checkRows looks for tenants that share a schema, and for rows, of tenants without jobs, that are of no use.
func (p *pool) checkRows(idle []routing.Placed) {
	told := 0
	for _, at := range idle {
		var route *routing.RouteError
		if errors.As(at.Err, &route) && told < mostListed {
			told++
			p.add(Error, "tenants", fmt.Sprintf("the row of tenant %s cannot be used: %v", at.ID, route), "nothing can be enqueued for it", "correct its row")
			p.about(About{Tenant: string(at.ID)})
		}
	}
	owners := map[string]tenancy.ID{}
	told = 0
	for _, at := range p.placed {
		owner, taken := owners[at.Schema]
		switch {
		case at.Err != nil || at.Pool != p.name:
		case !taken:
			owners[at.Schema] = at.ID
		case told < mostListed:
			told++
			p.add(Error, "tenants", fmt.Sprintf("tenants %q and %q of tenants.table share schema %q", owner, at.ID, at.Schema), "each reads and changes the other's data: a process refuses only the one that it looks up after the other",
				"give each its own schema, and the table a UNIQUE index on its pool and schema")
			p.about(About{Tenant: string(at.ID)})
		}
	}
}

// tableWithin bounds how long the database of the lookup table is waited for, if nothing else does.
const tableWithin = 2 * time.Second
