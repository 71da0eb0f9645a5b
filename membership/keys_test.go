package membership

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Three nodes change the key of their gossip one after another, in the documented steps, while they
// talk: every message arrives, nothing cannot be decrypted, and nobody is missed.
func TestKeysChangeWhileNodesTalk(t *testing.T) {
	t.Parallel()
	before, after := gossipKey(1), gossipKey(2)
	received := map[*Cluster]chan string{}
	var all []*Cluster
	for i := range 3 {
		cfg := testConfig(t)
		cfg.Keys = []string{before}
		if i > 0 {
			cfg.Join = []string{all[0].Self().Addr}
		}
		all = append(all, start(t, cfg, Self{Node: string(rune('a' + i))}, func(c *Cluster) {
			ch := make(chan string, 1000)
			received[c] = ch
			c.Handle(7, func(from string, payload []byte) error { ch <- from + " " + string(payload); return nil })
		}))
	}
	agree(t, all...)
	round := 0
	talk := func() {
		t.Helper()
		round++
		for _, from := range all {
			for _, to := range all {
				if from == to {
					continue
				}
				for i := range 5 {
					require.NoError(t, from.Send(to.name, 7, fmt.Appendf(nil, "%d.%d", round, i)))
				}
			}
		}
		for _, to := range all {
			var want, got []string
			for _, from := range all {
				for i := range 5 {
					if from != to {
						want = append(want, fmt.Sprintf("%s %d.%d", from.name, round, i))
						got = append(got, await(t, received[to]))
					}
				}
			}
			require.ElementsMatch(t, want, got)
			require.Equal(t, memberNames(all...), eligible(to))
		}
		for _, c := range all {
			_, err := c.ml.Join([]string{all[0].Self().Addr}) // by TCP, too
			require.NoError(t, err)
			require.Zero(t, counter(t, c.metrics.undecryptable), "%s after round %d", c.name, round)
		}
	}
	talk()
	for _, keys := range [][]string{{before, after}, {after, before}, {after}} {
		for _, c := range all {
			require.True(t, c.SetKeys(keys))
			require.False(t, c.SetKeys(keys), "they are so already")
			talk()
		}
	}

	cfg := testConfig(t, all[0].Self().Addr)
	cfg.Keys = []string{before}
	late := start(t, cfg, Self{Node: "late"})
	eventually(t, func() bool { return counter(t, all[0].metrics.undecryptable) > 0 }, "the old key to be worth nothing")
	require.Len(t, late.Members(), 1)
	require.Equal(t, memberNames(all...), eligible(all[0]))
	require.True(t, late.SetKeys([]string{after}))
	agree(t, append(all, late)...)
}

func TestKeysThatCannotBeChanged(t *testing.T) {
	t.Parallel()
	none := build(t, testConfig(t), Self{Node: "none"})
	require.False(t, none.SetKeys([]string{gossipKey(1)}), "gossip begins to be encrypted with a start")
	require.False(t, Single(Self{Node: "single", Role: RoleNode}).SetKeys([]string{gossipKey(1)}))
	cfg := testConfig(t)
	cfg.Keys = []string{gossipKey(1)}
	some := build(t, cfg, Self{Node: "some"})
	for _, keys := range [][]string{nil, {"?"}, {base64.StdEncoding.EncodeToString([]byte("short"))}, {gossipKey(1), gossipKey(1)}} {
		require.False(t, some.SetKeys(keys))
	}
}

// Whatever the keys were, they become what is wanted, in that order; the lists that packets are being
// decrypted with meanwhile stay as they were.
func TestKeysBecomeWhatIsWanted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfNDistinct(rapid.ByteRange(1, 5), 1, 4, rapid.ID)
		keysOf := func(label string) (keys [][]byte) {
			for _, b := range some.Draw(t, label) {
				keys = append(keys, bytes.Repeat([]byte{b}, 16))
			}
			return keys
		}
		have, want := keysOf("have"), keysOf("want")
		ring, err := memberlist.NewKeyring(have, have[0])
		require.NoError(t, err)
		k := &keys{ring: ring}
		seen := ring.GetKeys()
		copied := slices.Clone(seen)
		var group sync.WaitGroup
		group.Go(func() { // as memberlist reads them, for the race detector
			for range 100 {
				_ = bytes.Join(ring.GetKeys(), nil)
			}
		})
		require.NoError(t, k.replace(want))
		group.Wait()
		require.Equal(t, want, ring.GetKeys())
		require.Equal(t, copied, seen)
	})
}
