// Package proposal adapts membership to acquisition and routing, which do not import it: the
// lock's acquirers see the cluster as the Elector they need, the cluster finds members in the
// ledgers, and routers' timelines travel by gossip. It has no state.
package proposal

import (
	"context"
	"math/rand/v2"
	"strings"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/semver"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
)

// seedPools is how many pools are asked for members at a time. Each costs a
// connection, so they are few; other pools have their turn.
const seedPools = 2

// Seeds finds members in the ledgers: a node that works on a pool has left its address
// there. So the sides of a healed partition find one another without a seed of
// either being configured on the other.
func Seeds(r *routing.Router) func(context.Context) []string {
	return func(ctx context.Context) (found []string) {
		pools := r.Pools()
		asked := 0
		for _, i := range rand.Perm(len(pools)) {
			if _, err := pools[i].Number(); err != nil {
				continue
			}
			found = append(found, addresses(ctx, pools[i])...)
			if asked++; asked == seedPools {
				break
			}
		}
		return found
	}
}

// addresses asks one pool, on a connection that is closed again: it may be an idle one.
// None while it does not answer: there is a next time.
func addresses(ctx context.Context, p *routing.Pool) (found []string) {
	_ = p.LookIn(ctx, func(conn *pgx.Conn) (err error) {
		found, err = store.GossipAddresses(ctx, conn)
		return err
	})
	return found
}

// Elector lets acquisition see the cluster as it wants to; see there what its methods mean.
type Elector struct{ *membership.Cluster }

var _ acquisition.Elector = Elector{}

func (e Elector) Elected(pool string) string {
	m, ok := e.Cluster.Elected(pool)
	if !ok || !m.Reaches(pool) {
		return ""
	}
	return m.Name
}

func (e Elector) Peers() (others []string) {
	for _, m := range e.Members() {
		if m.Eligible() && m.Name != e.Self().Name {
			others = append(others, m.Name)
		}
	}
	return others
}

// Successor is the most preferred of the members but this one and those ruled out with the
// newest version, so that in a rolling deployment each lock moves once. Versions that are
// no semantic versions count as equal and oldest.
func (e Elector) Successor(pool string, out func(member string) bool) (successor string) {
	newest := ""
	for _, m := range e.Prefer(pool) {
		version := "v" + strings.TrimPrefix(m.Version, "v")
		if m.Name == e.Self().Name || out(m.Name) || !m.Reaches(pool) || successor != "" && semver.Compare(version, newest) <= 0 {
			continue
		}
		successor, newest = m.Name, version
	}
	return successor
}

func (e Elector) Drain() { e.SetDraining(true) }
