package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/internal/store"
)

// mostApart is how far the clocks of a node and of a server may be apart: more than any round trip
// here, and less than a wait that anybody would notice.
const mostApart = 2 * time.Second

// crowded is how much of a server's connections may be open, in percent.
const crowded = 90

// checkServer looks at the server's clock, and at what it was told to do.
func (p *pool) checkServer(ctx context.Context, db store.DB) error {
	before := p.now()
	h, err := store.ReadServerHealth(ctx, db)
	if err != nil {
		return err
	}
	after := p.now()
	apart := h.Clock.Sub(before.Add(after.Sub(before) / 2))
	if doubt := after.Sub(before) / 2; max(apart, -apart)-doubt > mostApart {
		p.add(Warning, "clock", fmt.Sprintf("this machine's clock is %v apart from the server's", max(apart, -apart).Round(100*time.Millisecond)),
			"what a program works out from its own clock, such as tenure.At(time.Now()), is due at another time by the server's", "timedatectl set-ntp true, on this machine and on the server's")
	}
	if !h.Vacuums {
		p.add(Warning, "vacuum", "autovacuum is off on its server", "dead rows are never tidied away, and everything there gets slower with time",
			"ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on; SELECT pg_reload_conf()")
	}
	// The ledger says which server it is; without one the connections are not compared.
	server, room, err := store.Server(ctx, db)
	if err != nil {
		return nil // checkLedger says why
	}
	p.server, p.room = server, room
	if room > 0 && h.Connections*100 >= room*crowded {
		p.add(Warning, "connections", fmt.Sprintf("%d connections to its server are open, of %d that there are for users", h.Connections, room),
			"who comes when all are taken is refused, nodes among them", "SELECT datname, usename, application_name, count(*) FROM pg_stat_activity GROUP BY 1, 2, 3 ORDER BY 4 DESC says who has them; end some, or raise max_connections")
	}
	return nil
}

// checkTables looks for who keeps others from the ledger's tables.
func (p *pool) checkTables(ctx context.Context, db store.DB) error {
	h, ok, err := store.FindTableHolder(ctx, db, "")
	if err != nil || !ok || h.Waiting == 0 {
		return err
	}
	select { // nodes lock tables, too, for a moment
	case <-ctx.Done():
		return nil
	case <-time.After(time.Second):
	}
	still, ok, err := store.FindTableHolder(ctx, db, "")
	if err != nil || !ok || still.PID != h.PID || still.Waiting == 0 {
		return err
	}
	h, p.locked = still, true
	p.add(Error, "connections", fmt.Sprintf("%v, and %s for it", h, plural.Count(h.Waiting, "session waits", "sessions wait")),
		"what needs that table waits until it ends, such as jobs that are added, claimed or ended", "wait for it; or, if it is not meant: "+h.End())
	return nil
}

// checkLedger asks what a node asks before it uses a ledger.
func (p *pool) checkLedger(ctx context.Context, db store.DB) error {
	number, err := store.Verify(ctx, db, p.name, store.ToRun)
	var wrong *store.PoolError
	if errors.As(err, &wrong) {
		check := "ledger"
		if strings.Contains(wrong.Fix, "GRANT ") {
			check = "privileges"
		}
		p.add(Error, check, wrong.What, "nodes with this configuration do not use the pool, and run none of its jobs", wrong.Fix)
		p.lacking = true
		return nil
	}
	p.number, p.lacking = number, err != nil
	return err
}

// checkTenants looks at the schemas and roles of those tenants that the configuration lists, or that the
// lookup table was asked for, and at the risks of the server.
func (p *pool) checkTenants(ctx context.Context, db store.DB) error {
	var schemas, roles []string
	without := false
	tenants := p.cfg.Routing().TenantsOf(p.name)
	for _, at := range p.placed {
		if at.Err == nil && at.Pool == p.name {
			tenants = append(tenants, at.Tenant)
		}
	}
	for _, t := range tenants {
		schemas, roles = append(schemas, t.Schema), append(roles, t.Role)
		without = without || t.Role == ""
	}
	r, err := store.LookForRisks(ctx, db, schemas, roles)
	if err != nil {
		return err
	}
	const waits = "jobs of these tenants that touch their data wait"
	if n := len(r.NoSchema); n > 0 {
		p.add(Error, "tenants", fmt.Sprintf("%s no schema: %s", plural.Count(n, "tenant has", "tenants have"), some(r.NoSchema)), waits,
			r.MakeSchemas[0]+"; or correct tenants.static, or the table")
	}
	if n := len(r.RefusedRoles); n > 0 {
		p.add(Error, "tenants", fmt.Sprintf("%s: %s", plural.Count(n, "role cannot be a tenant's, as it would keep nobody apart", "roles cannot be tenants', as they would keep nobody apart"), some(r.RefusedRoles)), "jobs of these tenants wait",
			"name other roles in tenants.static, or in the table")
	}
	if n := len(r.NoRole); n > 0 {
		mend := fmt.Sprintf("CREATE ROLE %q, unless it exists; then: tenure migrate --pool %s --grants", r.NoRole[0], p.name)
		if len(p.placed) > 0 {
			mend += ", which looks after tenants.static; for the table's: " + r.MakeRoles[0]
		}
		p.add(Error, "tenants", fmt.Sprintf("%s: %s", plural.Count(n, "role of a tenant does not exist, or the pool's user is no member of it", "roles of tenants do not exist, or the pool's user is no member of them"), some(r.NoRole)), waits, mend)
	}
	if n := len(r.NoUsage); n > 0 {
		p.add(Error, "privileges", fmt.Sprintf("%s may not use %s: %s", plural.Count(n, "role, or user where a tenant has none,", "roles, or users where tenants have none,"), plural.Which(n, "its schema", "their schemas"), some(r.NoUsage)), waits, strings.Join(r.UsageGrants, "; "))
	}
	if n := len(r.EnqueueGrants); n > 0 {
		p.add(Warning, "privileges", "roles of tenants may not enqueue", "an enqueue in a transaction of theirs fails", strings.Join(r.EnqueueGrants, "; "))
	}
	if n := len(r.MightyRoles); n > 0 {
		p.add(Warning, "tenants", fmt.Sprintf("%s row-level security: %s", plural.Count(n, "role of a tenant is a superuser or bypasses", "roles of tenants are superusers or bypass"), some(r.MightyRoles)), "they keep no tenants apart",
			fmt.Sprintf("give the tenant another role; or, if it is a tenant's alone: ALTER ROLE %q NOSUPERUSER NOBYPASSRLS", r.MightyRoles[0]))
	}
	if without && r.Mighty {
		p.add(Warning, "tenants", "the pool's user is a superuser or bypasses row-level security, and tenants without a role run as that user", "handlers of one tenant may do anything to all others and to the server",
			fmt.Sprintf("set tenants.role; or CREATE ROLE app LOGIN; then: tenure migrate --pool %s --grants --runtime app, and name it in pools.%s.dsn", p.name, p.name))
	}
	if r.LosesRole() && slices.ContainsFunc(roles, func(role string) bool { return role != "" }) {
		p.add(Warning, "server", "this minor version of Postgres may lose a transaction's role (CVE-2024-10978)", "roles keep tenants apart", "apt-get install --only-upgrade postgresql, or as its server is upgraded")
	}
	if !r.FSync {
		p.add(Warning, "server", "fsync is off", "a crash of the server's machine loses jobs or the whole database", "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()")
	}
	if !r.FullPageWrites {
		p.add(Warning, "server", "full_page_writes is off", "a crash of the server's machine can damage the database", "ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf()")
	}
	return nil
}

// checkShared looks at the schemas that tenants have in common.
func (p *pool) checkShared(ctx context.Context, db store.DB) error {
	schemas := p.cfg.Tenants.Schemas
	if own := p.cfg.Pools[p.name].Schemas; len(own) > 0 {
		schemas = own
	}
	s, err := store.LookAtShared(ctx, db, append([]string{}, schemas...))
	if n := len(s.Missing); n > 0 {
		p.add(Error, "tenants", fmt.Sprintf("schemas that tenants share are not there: %s", some(s.Missing)), "what jobs look for there is not found", fmt.Sprintf("CREATE SCHEMA %q; or correct tenants.schemas", s.Missing[0]))
	}
	if n := len(s.Open); n > 0 {
		p.add(Error, "tenants", fmt.Sprintf("everybody may make something in schemas that tenants share: %s", some(s.Open)), "a tenant's function there is executed by other tenants' statements", fmt.Sprintf("REVOKE CREATE ON SCHEMA %q FROM PUBLIC", s.Open[0]))
	}
	if n := len(s.Unreached); n > 0 {
		_, schema, _ := strings.Cut(s.Unreached[0], " in ")
		p.add(Warning, "tenants", fmt.Sprintf("tenants' transactions do not find the types and operators of extensions: %s", some(s.Unreached)),
			"a comparison of citext, say, is one of text there, and finds less, without an error", fmt.Sprintf("tenants.schemas: [%s]; or, if no job needs them, leave it so", schema))
	}
	return err
}

// checkHolders looks for who has rights on the ledger and was not named, and for who was named and has none.
func (p *pool) checkHolders(ctx context.Context, db store.DB) error {
	all, err := store.Holders(ctx, db)
	for _, h := range all {
		severity, mend := Error, h.Mend()
		switch name := h.Name(p.name); {
		case name != "" && mend == "":
			severity, mend = Warning, "nodes or clients connect as this user: "+name
		case name != "":
			severity, mend = Warning, "if nodes or clients connect as this user: "+name+"; if not, "+mend
		}
		means := "it may read, add, change or remove jobs of any tenant, or keep them from running"
		if h.Lost {
			means = "nodes and clients that connect as this user keep the pool out of service"
		}
		p.add(severity, "privileges", h.String(), means, mend)
	}
	return err
}

// some lists the first of many names.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// What may be open for how long: less is ordinary work. Where a session's time is hidden, how many
// transactions have begun since counts.
const (
	longOpen = 10 * time.Minute
	longAge  = 1_000_000
)

// mostListed bounds how many transactions, and how many jobs, are told of.
const mostListed = 5

// checkTransactions looks for what keeps dead rows from being tidied away.
func (p *pool) checkTransactions(ctx context.Context, db store.DB) error {
	all, err := store.Holdups(ctx, db, mostListed)
	if err != nil {
		return err
	}
	var unseen []string
	from := ""
	for _, h := range all {
		if h.HiddenFrom != "" && h.Age > 0 && h.Age < longAge {
			from = h.HiddenFrom
			unseen = append(unseen, fmt.Sprintf("%s %s of user %s (application %q), open for %s", h.What, h.ID, h.User, h.Application, plural.Count(int(h.Age), "transaction", "transactions")))
		}
		if h.Open < p.open && h.Age < longAge || h.What == "replication slot" && h.State == "inactive" { // which checkReplication tells of
			continue
		}
		since := fmt.Sprintf("for %d transactions", h.Age)
		if h.Open > 0 {
			since = "for " + h.Open.Round(time.Second).String()
		}
		who := ""
		if h.User != "" {
			who = fmt.Sprintf(" of user %s (application %q, %s)", h.User, h.Application, h.State)
		}
		if h.What == "prepared transaction" {
			who = " of user " + h.User
		}
		p.add(Warning, "transactions", fmt.Sprintf("%s %s%s has been open %s", h.What, h.ID, who, since),
			"Postgres cannot tidy away rows that ended since, and the whole database gets slower", h.Remedy())
	}
	if len(unseen) > 0 {
		p.add(Note, "transactions", fmt.Sprintf("Postgres hides from user %s since when others' transactions are open: %s", from, strings.Join(unseen, "; ")),
			"one that has been open for long keeps rows from being tidied away, and is not found", fmt.Sprintf("as a superuser: GRANT pg_read_all_stats TO %s", pgx.Identifier{from}.Sanitize()))
	}
	return nil
}

// checkReplication looks for replication slots that nobody reads from, and for publications whose subscribers will stop.
func (p *pool) checkReplication(ctx context.Context, db store.DB) error {
	publications, err := store.PublicationsOfDays(ctx, db)
	if err != nil {
		return err
	}
	for _, name := range publications {
		p.add(Warning, "replication", fmt.Sprintf("publication %s publishes the finished jobs of each day by the name of that day's table", name),
			"a subscriber stops at the first day that it has no table for, and the server then keeps its write-ahead log until the disk is full",
			fmt.Sprintf("ALTER PUBLICATION %s SET (publish_via_partition_root = true); then, at the subscriber: ALTER SUBSCRIPTION … REFRESH PUBLICATION", pgx.Identifier{name}.Sanitize()))
	}
	slots, err := store.InactiveSlots(ctx, db)
	for _, slot := range slots {
		h := store.Holdup{HoldupID: store.HoldupID{What: "replication slot", ID: slot}, State: "inactive"}
		p.add(Warning, "replication", fmt.Sprintf("nobody reads from replication slot %s", slot),
			"the server keeps its write-ahead log for it until the disk is full, and maybe dead rows", h.Remedy())
	}
	return err
}

// looksAtOnce is how many queries of all finished jobs a server is to bear at a time.
const looksAtOnce = 20

// checkLocks looks whether the server has room for the locks that queries of finished jobs take.
func (p *pool) checkLocks(ctx context.Context, db store.DB) error {
	look, room, err := store.LockRoom(ctx, db)
	if err == nil && look*looksAtOnce > room {
		p.add(Warning, "server", fmt.Sprintf("a look at tenure.job_status takes %d locks, one for each day of finished jobs and each of its indexes, and the server has room for %d", look, room),
			"a few of them at a time fail with \"out of shared memory\", and so does whatever else needs a lock then",
			"keep finished jobs for fewer days (execution.retention); or raise max_locks_per_transaction, and restart the server")
	}
	return err
}

// farBehind is how many times as many dead rows as vacuum is due at are too many, and fewDead how
// many never are.
const (
	farBehind = 5
	fewDead   = 10_000
)

// checkVacuum looks how far vacuum is behind on the ledger's tables.
func (p *pool) checkVacuum(ctx context.Context, db store.DB) error {
	tables, err := store.TableHealths(ctx, db)
	for _, t := range tables {
		if !t.Vacuums {
			p.add(Warning, "vacuum", fmt.Sprintf("autovacuum is off for table tenure.%s", t.Name), "its dead rows are never tidied away, and jobs get slower with time",
				fmt.Sprintf(`ALTER TABLE tenure."%s" RESET (autovacuum_enabled)`, t.Name))
		}
		if t.Dead >= fewDead && t.Dead > farBehind*t.DueAt {
			p.add(Warning, "vacuum", fmt.Sprintf("table tenure.%s has %d dead rows, and was due for a vacuum at %d", t.Name, t.Dead, t.DueAt),
				"the queries that find jobs read past them", fmt.Sprintf(`VACUUM (VERBOSE) tenure."%s"; if rows stay, see the findings about transactions; if it comes again, raise autovacuum_max_workers`, t.Name))
		}
	}
	return err
}
