package membership

import (
	"encoding/binary"
	"slices"
)

// poolSet is a set of pools in as few bytes as metadata can spare: four of each
// pool's hash, ascending. Two pools that share them are taken for one another, which
// an election that only proposes can live with. The zero value is empty.
type poolSet string

// everyPool stands for more pools than fit: a node that cannot reach so many
// databases had better not be elected for any.
const everyPool poolSet = "*"

// maxPoolSet is how many pools a set can name.
const maxPoolSet = 32

func poolSetOf(pools []string) poolSet {
	if len(pools) > maxPoolSet {
		return everyPool
	}
	short := make([]uint32, len(pools))
	for i, p := range pools {
		short[i] = shortHash(hashName(p))
	}
	slices.Sort(short)
	var b []byte
	for _, h := range slices.Compact(short) {
		b = binary.BigEndian.AppendUint32(b, h)
	}
	return poolSet(b)
}

func shortHash(hash uint64) uint32 { return uint32(hash >> 32) }

// hasPool takes a pool's hash.
func (s poolSet) hasPool(hash uint64) bool {
	switch s {
	case "":
		return false
	case everyPool:
		return true
	}
	want := shortHash(hash)
	for i := 0; i+4 <= len(s); i += 4 {
		if binary.BigEndian.Uint32([]byte(s[i:i+4])) == want {
			return true
		}
	}
	return false
}

// appendTo writes how many pools there are, or 255 for all, and then them.
func (s poolSet) appendTo(b []byte) []byte {
	if s == everyPool {
		return append(b, 255)
	}
	return append(append(b, byte(len(s)/4)), s...)
}

// cutPoolSet reads what appendTo wrote. Nothing at all, as older members send it, is
// the empty set.
func cutPoolSet(b []byte) (s poolSet, rest []byte, ok bool) {
	switch {
	case len(b) == 0:
		return "", nil, true
	case b[0] == 255:
		return everyPool, b[1:], true
	case b[0] > maxPoolSet || len(b) < 1+4*int(b[0]):
		return "", nil, false
	}
	n := 1 + 4*int(b[0])
	return poolSet(b[1:n]), b[n:], true
}
