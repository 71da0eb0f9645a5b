package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestLedgerIsLikePostgres runs the same random calls on the ledger in memory and on a
// real one, and wants the same answers.
func TestLedgerIsLikePostgres(t *testing.T) {
	t.Parallel()
	real, err := pgx.Connect(t.Context(), storetest.DSN(t, "p0", 1))
	require.NoError(t, err)
	defer real.Close(background)

	statements := loadStatements()
	w := &world{wires: newWires(1)}
	w.judge = newJudge(w)
	w.judge.add("p0")
	l := newLedger(w.wires, "p0", 1, poolAddr(0), statements, w.judge, flaws{})
	client := w.wires.plug(nodeAddr(0), nil)
	cfg, err := pgx.ParseConfig("host=" + poolAddr(0) + " user=sim dbname=p0 sslmode=disable")
	require.NoError(t, err)
	cfg.DialFunc = client.Dial
	simulated, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer func() {
		simulated.Close(background)
		w.wires.unplug(l.host)
		l.backends.Wait()
	}()

	// both is a call's answer by each of the two.
	both := func(call func(db store.DB, epoch int64) string, epochs [2]int64) [2]string {
		return [2]string{call(real, epochs[0]), call(simulated, epochs[1])}
	}
	var (
		rng      = rand.New(rand.NewPCG(*firstSeed, 0))
		sessions = make([]uuid.UUID, 3)
		members  = []string{"m0", "m1", "m2"}
		epochs   [2]int64 // given out last: the two clocks are not the same
		seq      int64
	)
	for i := range sessions {
		sessions[i] = uuid.New()
	}
	span := func() time.Duration { return []time.Duration{0, time.Hour}[rng.IntN(2)] }
	for step := range 250 {
		i := rng.IntN(3)
		me, ttl, other := sessions[i], span(), append(slices.Clone(members), "")[rng.IntN(4)]
		if rng.IntN(8) == 0 {
			epochs[0]--
			epochs[1]--
		}
		seen, gone := seq-int64(rng.IntN(2)), rng.IntN(2) == 0
		var what string
		var call func(db store.DB, epoch int64) string
		ctx := t.Context()
		switch rng.IntN(8) {
		case 0:
			what = "open"
			call = func(db store.DB, _ int64) string {
				return fmt.Sprint(store.OpenSession(ctx, db, store.Session{ID: me, Node: members[i], Member: members[i], GossipAddr: members[i] + ":1"}, ttl))
			}
		case 1:
			what = "leave"
			call = func(db store.DB, _ int64) string { return fmt.Sprint(store.LeaveSession(ctx, db, me)) }
			if rng.IntN(3) == 0 { // a session never comes back
				sessions[i] = uuid.New()
			}
		case 2:
			what = "beat"
			call = func(db store.DB, _ int64) string {
				_, err := store.BeatSession(ctx, db, me, ttl)
				return fmt.Sprint(err)
			}
		case 3:
			what = "seeds"
			call = func(db store.DB, _ int64) string {
				addrs, err := store.GossipAddresses(ctx, db)
				slices.Sort(addrs)
				return fmt.Sprint(slices.Compact(addrs), err)
			}
		case 4, 5:
			what = "take"
			call = func(db store.DB, _ int64) string {
				mine, k, err := store.TakeLock(ctx, db, store.Claimant{Session: me, Member: members[i], SeenSeq: seen, HolderGone: gone}, ttl)
				if mine {
					k.RenewSeq = 0
				}
				return fmt.Sprint(mine, k.Holder, k.Next, k.RenewSeq, k.Remaining > 0, err)
			}
		case 6:
			what = "renew"
			call = func(db store.DB, epoch int64) string {
				incarnation, err := store.ReadIncarnation(ctx, db)
				require.NoError(t, err)
				_, err = store.RenewLock(ctx, db, store.Fence{Session: me, Epoch: epoch, Incarnation: incarnation}, ttl, ttl)
				return fmt.Sprint(err)
			}
		case 7:
			what = "offer"
			call = func(db store.DB, epoch int64) string {
				return fmt.Sprint(store.OfferLock(ctx, db, store.Fence{Session: me, Epoch: epoch}, other, ttl))
			}
		}
		said := both(call, epochs)
		require.Equal(t, said[0], said[1], "step %d: %s by %s, other %q, ttl %v, seen %d, gone %v", step, what, members[i], other, ttl, seen, gone)
		var now [2]store.Lock
		for which, db := range []store.DB{real, simulated} {
			k, err := store.ReadLock(ctx, db)
			require.NoError(t, err)
			epochs[which], seq = k.Epoch, k.RenewSeq
			k.Remaining = min(k.Remaining, 1)
			k.Epoch, k.TakenAt, k.Quiet = 0, time.Time{}, 0
			k.TTL = k.TTL.Round(time.Minute)
			now[which] = k
		}
		require.Equal(t, now[0], now[1], "step %d, after %s", step, what)
	}
}
