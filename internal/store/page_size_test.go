package store_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// What unfolds beyond the bound stays on the server, and so does what a page has no room
// for; the rest of the page is read.
func TestPageWithholdsWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	add := func(payload string) {
		_, err := b.owner.Exec(t.Context(), "INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT 'acme', 'default', 'k', "+payload)
		require.NoError(t, err)
	}
	const digits = 100_000
	unfolding := func(bytes int) string { // a few bytes for each number, as long as it is not printed
		return fmt.Sprintf("jsonb_agg('1e%d'::numeric) FROM generate_series(1, %d)", digits, bytes/digits)
	}
	add(unfolding(store.MaxJobBytes + digits))
	add(`'"small"'`)
	for range store.MaxPageBytes/(10*digits) + 1 {
		add(unfolding(10 * digits))
	}
	p := b.page(t, 0)
	require.True(t, p.Jobs[0].TooLarge)
	require.Nil(t, p.Jobs[0].Record.Payload)
	require.Greater(t, p.Jobs[0].Bytes, int64(store.MaxJobBytes))
	require.JSONEq(t, `"small"`, string(p.Jobs[1].Record.Payload))
	shown, left := int64(0), 0
	for _, j := range p.Jobs[1:] {
		require.False(t, j.TooLarge)
		require.Equal(t, j.Left, j.Record.Payload == nil)
		shown += int64(len(j.Record.Payload))
		if j.Left {
			left++
		}
	}
	require.LessOrEqual(t, shown, int64(store.MaxPageBytes))
	require.Equal(t, 1, left, "all but the last fit")

	var r store.PageRequest
	r.Add(store.Lane{Queue: "default", Tenant: "acme"}, 0, len(p.Jobs))
	r.Room, shown = store.MaxJobBytes, 0
	p, err := store.ReadPage(t.Context(), b.owner, &r, store.KindsOf([]string{"k"}), false)
	require.NoError(t, err)
	for _, j := range p.Jobs {
		shown += int64(len(j.Record.Payload))
	}
	require.Positive(t, shown)
	require.LessOrEqual(t, shown, int64(store.MaxJobBytes), "the request has less room")
}

// add adds a job with this payload, an SQL expression.
func (b *bundle) add(t *testing.T, tenant, payload string) (id job.ID) {
	t.Helper()
	require.NoError(t, b.owner.QueryRow(t.Context(), "INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT $1, 'default', 'k', "+payload+" RETURNING id", tenant).Scan(&id))
	return id
}

// Payloads that Postgres cannot print, or not soon, though they are stored in little.
var unprintable = map[string]string{
	"more than 1 GB":                "(SELECT jsonb_agg('1e100000'::numeric) FROM generate_series(1, 11000))",
	"64 MB of one letter":           "to_jsonb(repeat('a', 64 << 20))",
	"few numbers of many digits":    "(SELECT jsonb_agg('1e-16000'::numeric) FROM generate_series(1, 30000))",
	"control characters":            `(SELECT jsonb_agg(repeat(E'\u0001', 1 << 20)) FROM generate_series(1, 20))`,
	"more than 1 GB, in its meta":   "jsonb_build_object('in', 'meta')",
	"a number alone, of 131 KB × 8": "(SELECT jsonb_agg(jsonb_build_object('n', jsonb_build_array('-1e131071'::numeric))) FROM generate_series(1, 9000))",
}

// A page with jobs that cannot be printed, or take long, is read: they are too large, and the
// others are whole.
func TestPageWithWhatCannotBePrinted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids, large := []job.ID{b.add(t, "acme", `'{"small": 1}'`)}, map[job.ID]string{}
	for name, payload := range unprintable {
		id := b.add(t, "acme", payload)
		if payload[0] == 'j' {
			execute(t, b.owner, fmt.Sprintf("UPDATE tenure.job SET meta = %s WHERE id = %d", unprintable["more than 1 GB"], id))
		}
		ids, large[id] = append(ids, id), name
	}
	ids = append(ids, b.add(t, "acme", `'{"small": 2}'`), b.add(t, "b", "jsonb_build_array(repeat('x', 100000), 1e1000, 0.5, -3)"))
	var seen []store.Waiting
	for p, after := b.page(t, 0), int64(0); ; p = b.read(t, store.PageRequest{Apart: true}, after) { // a look has time for one of them at least
		require.NotEmpty(t, p.Jobs)
		require.False(t, p.Jobs[0].Left)
		for _, w := range p.Jobs {
			if !w.Left && !slices.ContainsFunc(seen, func(s store.Waiting) bool { return s.Record.ID == w.Record.ID }) {
				seen = append(seen, w)
			}
			if !w.Left && w.Record.Tenant == "acme" {
				after = w.Position
			}
		}
		if len(seen) == len(ids) {
			break
		}
	}
	slices.SortFunc(seen, func(a, b store.Waiting) int { return cmp.Compare(a.Position, b.Position) })
	for i, w := range seen {
		require.Equal(t, ids[i], w.Record.ID)
		name, isLarge := large[w.Record.ID]
		require.Equal(t, isLarge, w.TooLarge, name)
		require.Equal(t, isLarge, w.Record.Payload == nil, name)
		if isLarge {
			require.Greater(t, w.Bytes, int64(store.MaxJobBytes), name)
		}
	}
	require.JSONEq(t, `{"small": 2}`, string(seen[len(ids)-2].Record.Payload))
	require.Equal(t, 101_016, len(seen[len(ids)-1].Record.Payload))
}

// Accepted claims come with their payloads, but for what cannot be printed.
func TestAcceptWithWhatCannotBePrinted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := []job.ID{b.add(t, "acme", unprintable["more than 1 GB"]), b.add(t, "acme", `'{"small": 1}'`)}
	execute(t, b.owner, "UPDATE tenure.acquire_lock SET expires_at = now() + interval '1 minute'") // that may have taken as long as it lives
	peer := openSession(t, b.db, "peer")
	lock, err := store.ReadLock(t.Context(), b.db)
	require.NoError(t, err)
	r := store.NewClaimRequest(lock.Removals, len(ids))
	r.AddPeer(peer)
	for _, id := range ids {
		r.Add(id, b.first())
	}
	given, err := store.InsertClaims(t.Context(), b.db, b.fence, r)
	require.NoError(t, err)
	require.Len(t, given, 1)
	accepted, err := store.AcceptClaims(t.Context(), b.db, peer, nil)
	require.NoError(t, err)
	require.Len(t, accepted, 1)
	require.Len(t, accepted[0].Jobs, 2)
	require.Nil(t, accepted[0].Jobs[0].Payload)
	require.JSONEq(t, `{"small": 1}`, string(accepted[0].Jobs[1].Payload))
}
