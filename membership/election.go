package membership

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// The election is rendezvous hashing with bounded load, and it is part of the
// wire protocol: members of different versions must compute the same result
// from the same view. Whatever changes here changes TestElectionVectors, and
// then needs a new meta version.
//
//	H(s)              = xxHash64, seed 0, of: len(s) as uint32 little endian, then s
//	M(x)              = the finaliser of MurmurHash3 (fmix64)
//	score(pool, node) = M(H(pool) xor M(H(node)))
//
// Pools are taken in ascending order of their names. Each goes to the eligible
// member with the highest score among those that reach its database and hold fewer
// than ceil(5·P / 4·N) pools, P being the number of pools and N of eligible members.
// If all that reach it are full, the highest score among them wins, and if nobody
// says that it reaches it, everybody is taken to. The score takes the configured node name and not the process name, so that a
// node gets its pools back after a restart; of equal scores the lesser process
// name wins. A pool outside the configured set goes by score alone.
//
// The bound matters because pools are few: plain rendezvous hashing of 10 pools
// onto 3 nodes often gives one of them six. See Mirrokni, Thorup and
// Zadimoghaddam, "Consistent Hashing with Bounded Loads", arXiv:1608.01350.

// election is who is elected for which pool, for one set of candidates and one
// set of pools. It is immutable.
type election struct {
	nodes   []candidate // ascending by name
	elected map[string]int32
}

// candidate is one eligible member.
type candidate struct {
	name        string // unique per process
	key         uint64 // M(H(node name))
	unreachable poolSet
}

func newCandidate(m Member) candidate {
	return candidate{name: m.Name, key: mix(hashName(m.Node)), unreachable: m.unreachable}
}

// newElection elects for all pools in O(P·N). nodes must ascend by name and
// pools must ascend, without duplicates.
func newElection(nodes []candidate, pools []string) *election {
	e := &election{nodes: nodes, elected: make(map[string]int32, len(pools))}
	if len(nodes) == 0 {
		return e
	}
	limit := loadLimit(len(pools), len(nodes))
	load := make([]int, len(nodes))
	for _, pool := range pools {
		h := hashName(pool)
		best := e.best(h, func(i int) bool { return !nodes[i].unreachable.hasPool(h) && load[i] < limit })
		if best < 0 {
			best = e.bestOutside(h)
		}
		load[best]++
		e.elected[pool] = int32(best)
	}
	return e
}

// loadLimit is ceil(1.25·pools/nodes). Tighter limits move more pools when a
// node comes or goes, looser ones leave nodes idle.
func loadLimit(pools, nodes int) int {
	return (5*pools + 4*nodes - 1) / (4 * nodes)
}

// winner is the index of the elected candidate, -1 without candidates.
func (e *election) winner(pool string) int {
	if i, ok := e.elected[pool]; ok {
		return int(i)
	}
	return e.bestOutside(hashName(pool))
}

// bestOutside is the winner by score alone: among those that reach the pool, if any do.
func (e *election) bestOutside(h uint64) int {
	best := e.best(h, func(i int) bool { return !e.nodes[i].unreachable.hasPool(h) })
	if best < 0 {
		best = e.best(h, func(int) bool { return true })
	}
	return best
}

// best is the candidate with the highest score for a pool's hash among some; -1
// without any.
func (e *election) best(h uint64, among func(i int) bool) int {
	best, bestScore := -1, uint64(0)
	for i := range e.nodes {
		if !among(i) {
			continue
		}
		// Strictly greater: of equal scores the first, which has the lesser name.
		if s := mix(h ^ e.nodes[i].key); best < 0 || s > bestScore {
			best, bestScore = i, s
		}
	}
	return best
}

// rankOf is candidate i's place in the preference order for pool, in O(N).
func (e *election) rankOf(pool string, i int) int {
	win := e.winner(pool)
	if i == win {
		return 0
	}
	h := hashName(pool)
	rank := 1 // behind the elected
	for j := range e.nodes {
		if j != win && j != i && e.before(h, j, i) {
			rank++
		}
	}
	return rank
}

// before tells whether candidate i is preferred to j, the elected one apart: those
// that reach the pool come first.
func (e *election) before(h uint64, i, j int) bool {
	if li, lj := e.nodes[i].unreachable.hasPool(h), e.nodes[j].unreachable.hasPool(h); li != lj {
		return lj
	}
	si, sj := mix(h^e.nodes[i].key), mix(h^e.nodes[j].key)
	return si > sj || si == sj && i < j
}

// preferenceOf is the whole preference order for pool, as indexes of candidates: the
// elected one, then the others by score.
func (e *election) preferenceOf(pool string) []int {
	h, win := hashName(pool), e.winner(pool)
	order := make([]int, len(e.nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		switch {
		case i == win:
			return -1
		case j == win:
			return 1
		case e.before(h, i, j):
			return -1
		default:
			return 1
		}
	})
	return order
}

// indexOf is the index of the candidate with this process name, -1 if there is none.
func (e *election) indexOf(name string) int {
	i, ok := slices.BinarySearchFunc(e.nodes, name, func(c candidate, name string) int { return strings.Compare(c.name, name) })
	if !ok {
		return -1
	}
	return i
}

// hashName is H. The length in front keeps any future concatenation unambiguous.
func hashName(s string) uint64 {
	var n [4]byte
	binary.LittleEndian.PutUint32(n[:], uint32(len(s)))
	var d xxhash.Digest
	d.Reset()
	d.Write(n[:])
	d.WriteString(s)
	return d.Sum64()
}

// mix is M. Every input bit reaches every output bit, so similar names score independently.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return x
}
