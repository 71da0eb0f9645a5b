package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
)

// Migration is a step that was applied to a pool's ledger.
type Migration struct {
	Pool    string
	Version int64
	Name    string
	Took    time.Duration
}

// LedgerHolder is somebody who has rights on a pool's ledger that no operator has given by naming him.
type LedgerHolder struct {
	User   string   // PUBLIC: everybody has them
	Tenant *string  // whose role it is, "" of all; nil: no tenant's
	Revoke []string // the statements that take the rights away; none: nodes may run as this user
	Lost   bool     // it was named, and has no rights any more
}

// String says who it is, and what is wrong.
func (h LedgerHolder) String() string { return store.Holder(h).String() }

// Mend is what takes the rights away, or what keeps them from a tenant whose role nodes run as.
func (h LedgerHolder) Mend() string { return store.Holder(h).Mend() }

// Name is the command that names the holder of a pool's ledger to work on it; "": it cannot be.
func (h LedgerHolder) Name(pool string) string { return store.Holder(h).Name(pool) }

func ledgerHolders(all []store.Holder) (out []LedgerHolder) {
	for _, h := range all {
		out = append(out, LedgerHolder(h))
	}
	return out
}

// MigratedPool is what became of one pool.
type MigratedPool struct {
	Pool  string
	Steps []Migration // those applied, also before an error
	// Grants are the statements that gave users named to work on the ledger what was added to it.
	// Neither these nor steps: it was up to date.
	Grants []string
	// Holders have rights on the ledger, and nobody has named them to work on it. They were given nothing.
	Holders []LedgerHolder
	Took    time.Duration
	Err     error // nil: its ledger is up to date and numbered
}

// MigrateOptions says which ledgers are migrated, and how many at a time.
type MigrateOptions struct {
	// Pools are the names of the pools to migrate. Default: all that are configured.
	Pools []string
	// PerServer is how many pools of one server are worked on at a time, each on one
	// connection, and on two while it is changed. Default: 8.
	PerServer int
	// AtOnce is how many pools of all servers are. Default: 32.
	AtOnce int
	// Done, if set, is called for each pool when nothing more is done to it: for one pool
	// at a time, in the order in which they are finished.
	Done func(MigratedPool)
	// Waits, if set, is called every few seconds for as long as a pool waits for somebody's transaction: whose it is,
	// and for how long it has been open. It may be called for several pools at a time.
	Waits func(pool, whom string)
}

const (
	migratePerServer = 8
	migrateAtOnce    = 32
)

// LedgerVersion is the version that Migrate brings a ledger to. This program works on
// ledgers of that version, and on newer ones that still admit programs for it.
func LedgerVersion() int64 { return store.LedgerVersion() }

// Migrate is [MigrateAll] with its defaults, for all configured pools or for those named.
func Migrate(ctx context.Context, cfg config.Config, pools ...string) ([]Migration, error) {
	done, err := MigrateAll(ctx, cfg, MigrateOptions{Pools: pools})
	var steps []Migration
	for _, p := range done {
		steps = append(steps, p.Steps...)
	}
	return steps, err
}

// MigrateAll brings the ledgers of pools to this program's version. Nodes never do that
// themselves. It only adds to a ledger, so that nodes of the release before go on working
// meanwhile and afterwards, and waits for no table in a way that holds up others. A pool
// that is up to date costs a few queries; one that fails does not keep the others from being
// migrated. So after a failure or an interruption it is called again, and goes on with
// what is left. Several may run at once.
//
// A pool that is migrated for the first time gets a number, which is part of its job ids;
// for the numbers to be different, every other configured pool must answer then.
//
// It returns what became of each pool that was begun, by name, and the errors of those
// that failed.
func MigrateAll(ctx context.Context, cfg config.Config, o MigrateOptions) ([]MigratedPool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(o.Pools) == 0 {
		o.Pools = slices.Collect(maps.Keys(cfg.Pools))
	}
	names := slices.Compact(slices.Sorted(slices.Values(o.Pools)))
	for _, name := range names {
		if _, ok := cfg.Pools[name]; !ok {
			return nil, fmt.Errorf("pool %q is not under pools", name)
		}
	}
	m := &migrator{
		cfg: cfg, options: o, began: time.Now(), ledgers: map[string]store.Ledger{}, unknown: map[string]error{}, done: map[string]MigratedPool{},
		perServer: cmp.Or(max(o.PerServer, 0), migratePerServer), atOnce: make(chan struct{}, cmp.Or(max(o.AtOnce, 0), migrateAtOnce)),
	}
	m.run(ctx, names)
	return m.collectResults(ctx, names)
}

// migrator is one MigrateAll.
type migrator struct {
	cfg       config.Config
	options   MigrateOptions
	began     time.Time
	perServer int
	atOnce    chan struct{}

	mu      sync.Mutex
	ledgers map[string]store.Ledger // guarded by mu; by pool, as it answered
	unknown map[string]error        // guarded by mu; by pool; it is not known which number it has
	done    map[string]MigratedPool // guarded by mu; by pool
}

func (m *migrator) run(ctx context.Context, names []string) {
	address := func(pool string) string { return addressOf(m.cfg.Pools[pool].DSN) }
	m.forEach(ctx, names, address, func(pool string) { m.askLedger(ctx, pool, true) })
	var rest []string
	unnumbered := false
	for _, pool := range names {
		if l, ok := m.ledgers[pool]; ok && m.done[pool].Pool == "" {
			rest = append(rest, pool)
			unnumbered = unnumbered || l.Number == 0
		}
	}
	if unnumbered {
		others := slices.DeleteFunc(slices.Sorted(maps.Keys(m.cfg.Pools)), func(pool string) bool { return slices.Contains(names, pool) })
		m.forEach(ctx, others, address, func(pool string) { m.askLedger(ctx, pool, false) })
	}
	numbers := m.proposeNumbers()
	server := func(pool string) string { // two addresses may lead to one
		id, _, _ := strings.Cut(m.ledgers[pool].Identity.Database, "/")
		return id
	}
	m.forEach(ctx, rest, server, func(pool string) { m.migratePool(ctx, pool, numbers[pool]) })
}

// askLedger asks a pool for its ledger. Those that are to be migrated, and have nothing left to
// do or cannot be used, are finished with that.
func (m *migrator) askLedger(ctx context.Context, pool string, named bool) {
	began := time.Now()
	var l store.Ledger
	conn, err := ownersConn(m.cfg, pool)
	if err == nil {
		err = onPool(ctx, conn, pool, func(c *pgx.Conn) (err error) {
			l, err = store.ReadLedger(ctx, c)
			return err
		})
	}
	if err == nil {
		err = l.Belongs(pool)
	}
	m.mu.Lock()
	if err == nil {
		m.ledgers[pool] = l
	} else {
		m.unknown[pool] = err
	}
	m.mu.Unlock()
	if err == nil {
		err = l.Usable(pool)
	}
	if named && (err != nil || l.UpToDate()) {
		m.finishPool(MigratedPool{Pool: pool, Holders: ledgerHolders(l.Holders), Took: time.Since(began), Err: err})
	}
}

// proposeNumbers proposes a number for each pool that has none: the lowest that no pool has, in
// the order of their names. Another command that migrates by the same configuration comes to
// the same ones, whichever of them have been given already.
func (m *migrator) proposeNumbers() map[string]int {
	taken, proposed := map[int]bool{}, map[string]int{}
	for _, l := range m.ledgers {
		taken[l.Number] = true
	}
	next := 1
	for _, pool := range slices.Sorted(maps.Keys(m.ledgers)) {
		if m.ledgers[pool].Number > 0 {
			continue
		}
		for taken[next] {
			next++
		}
		taken[next] = true
		proposed[pool] = next
	}
	return proposed
}

func (m *migrator) migratePool(ctx context.Context, pool string, number int) {
	began := time.Now()
	result := MigratedPool{Pool: pool}
	if len(m.unknown) > 0 {
		number = 0
	}
	conn, err := ownersConn(m.cfg, pool)
	if err == nil {
		var done store.Migrated
		done, err = store.Migrate(ctx, conn, pool, number, func(whom string) {
			if m.options.Waits != nil {
				m.options.Waits(pool, whom)
			}
		})
		for _, s := range done.Steps {
			result.Steps = append(result.Steps, Migration{pool, s.Version, s.Name, s.Took})
		}
		result.Grants, result.Holders = done.Grants, ledgerHolders(done.Holders)
		err = routing.NamePool(pool, err)
	}
	if err == nil && m.ledgers[pool].Number == 0 && number == 0 {
		err = m.explainUnnumbered(pool)
	}
	result.Err, result.Took = err, time.Since(began)
	m.finishPool(result)
}

// explainUnnumbered says why a new pool got no number.
func (m *migrator) explainUnnumbered(pool string) error {
	silent := slices.Sorted(maps.Keys(m.unknown))
	more := ""
	if len(silent) > 1 {
		more = fmt.Sprintf(" (and %d more)", len(silent)-1)
	}
	return fmt.Errorf("pool %s is new and cannot be numbered while it is not known which numbers are taken; run migrate again when all pools answer: %w%s",
		pool, m.unknown[silent[0]], more)
}

func (m *migrator) finishPool(p MigratedPool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done[p.Pool] = p
	if m.options.Done != nil {
		m.options.Done(p)
	}
}

// collectResults returns what became of the pools, by name.
func (m *migrator) collectResults(ctx context.Context, names []string) (all []MigratedPool, err error) {
	var failed []error
	begun := 0
	for _, pool := range names {
		p, ok := m.done[pool]
		if !ok {
			continue
		}
		begun++
		all = append(all, p)
		if p.Err != nil {
			failed = append(failed, p.Err)
		}
	}
	if begun < len(names) {
		failed = append(failed, fmt.Errorf("%d of %s %s not begun: %w", len(names)-begun, plural.Count(len(names), "pool", "pools"), plural.Which(len(names)-begun, "was", "were"), context.Cause(ctx)))
	}
	owner := map[int]string{}
	for _, pool := range slices.Sorted(maps.Keys(m.ledgers)) {
		switch n := m.ledgers[pool].Number; {
		case n == 0:
		case owner[n] != "":
			failed = append(failed, fmt.Errorf("pools %s and %s have the same number %d, so their job ids would collide; migrate the newer one again into a new database, with a configuration that names all pools",
				owner[n], pool, n))
		default:
			owner[n] = pool
		}
	}
	return all, errors.Join(failed...)
}

// forEach calls do for each pool: of the pools with one key as many at a time as one
// server is to bear. It ends early when ctx does, with what was begun.
func (m *migrator) forEach(ctx context.Context, pools []string, key func(string) string, do func(string)) {
	queues := map[string]chan string{}
	for _, pool := range pools {
		k := key(pool)
		if queues[k] == nil {
			queues[k] = make(chan string, len(pools))
		}
		queues[k] <- pool
	}
	var group sync.WaitGroup
	for _, queue := range queues {
		close(queue)
		for range min(m.perServer, len(queue)) {
			group.Go(func() {
				for pool := range queue {
					select {
					case m.atOnce <- struct{}{}:
					case <-ctx.Done():
						return
					}
					if ctx.Err() == nil {
						do(pool)
					}
					<-m.atOnce
				}
			})
		}
	}
	group.Wait()
}

// migrateConnect bounds a connect whose DSN sets no bound.
const migrateConnect = 10 * time.Second

// ownersConn is how the ledgers' owner connects to a pool.
func ownersConn(cfg config.Config, pool string) (*pgx.ConnConfig, error) {
	c, err := pgx.ParseConfig(cfg.Pools[pool].DSN)
	if err != nil {
		return nil, fmt.Errorf("pool %s: its dsn cannot be read as a Postgres connection string", pool) // err may quote the password
	}
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, migrateConnect)
	store.MigrationConfig(c)
	return c, nil
}

// addressOf is where a DSN leads to; "" for one that cannot be read.
func addressOf(dsn string) string {
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		return ""
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
}

// onPool runs fn on a connection of its own to a pool's database.
func onPool(ctx context.Context, c *pgx.ConnConfig, pool string, fn func(*pgx.Conn) error) error {
	conn, err := pgx.ConnectConfig(ctx, c)
	if store.BehindPooler(err) {
		return store.NoSession(pool)
	}
	if err != nil {
		return fmt.Errorf("connect to pool %s: %w", pool, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return routing.NamePool(pool, fn(conn))
}
