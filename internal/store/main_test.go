package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	conn, err := storetest.Pool(t).Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	files, err := filepath.Glob("queries/*.sql")
	require.NoError(t, err)
	require.Greater(t, len(files), 40)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), "-- "), "%s begins with a comment that says what it does", f)
		_, err = conn.Conn().Prepare(t.Context(), filepath.Base(f), store.Fill(string(text)))
		require.NoError(t, err, f)
	}
}

// bundle is a pool with one session that holds the lock.
type bundle struct {
	db    *pgxpool.Pool // of the user that nodes and clients connect as
	owner *pgxpool.Pool // a superuser's
	fence store.Fence
}

const ttl = time.Hour // no test takes as long

func openSession(t testing.TB, db store.DB, member string) uuid.UUID {
	id := uuid.New()
	require.NoError(t, store.OpenSession(t.Context(), db, store.Session{ID: id, Node: member, Member: member, Kinds: []string{"k"}}, ttl))
	return id
}

func setup(t testing.TB) *bundle {
	owner, db := storetest.Pools(t)
	id := openSession(t, db, "a")
	mine, l, err := store.TakeLock(t.Context(), db, store.Claimant{Session: id, Member: "a", SeenSeq: -1}, ttl)
	require.NoError(t, err)
	require.True(t, mine)
	return &bundle{db: db, owner: owner, fence: store.Fence{Session: id, Epoch: l.Epoch, Incarnation: l.Incarnation}}
}

func (b *bundle) enqueue(t *testing.T, j store.NewJob) job.ID {
	if j.Kind == "" {
		j.Kind = "k"
	}
	if j.Queue == "" {
		j.Queue = "default"
	}
	if j.Tenant == "" {
		j.Tenant = "acme"
	}
	if j.Payload == nil {
		j.Payload = []byte(`{"n": 1}`)
	}
	id, _, err := store.Enqueue(t.Context(), b.db.QueryRow, 1, &j)
	require.NoError(t, err)
	return id
}

func (b *bundle) page(t *testing.T, after int64) store.Page {
	return b.read(t, store.PageRequest{}, after)
}

// read reads a page of all lanes.
func (b *bundle) read(t *testing.T, req store.PageRequest, after int64) store.Page {
	lanes, err := store.Lanes(t.Context(), b.db, 100)
	require.NoError(t, err)
	for _, l := range lanes {
		req.Add(l, after, 1000)
	}
	p, err := store.ReadPage(t.Context(), b.db, &req, store.KindsOf([]string{"k"}), false)
	require.NoError(t, err)
	return p
}

func (b *bundle) claim(t *testing.T, p store.Page) map[int32]int64 {
	claims, err := store.InsertClaims(t.Context(), b.db, b.fence, request(p))
	require.NoError(t, err)
	byTurn := map[int32]int64{}
	for _, c := range claims {
		byTurn[c.Turn] = c.ID
	}
	return byTurn
}

// request is for all jobs of a page, dealt out to the sessions or, without any, the holder's.
func request(p store.Page, to ...uuid.UUID) *store.ClaimRequest {
	r := store.NewClaimRequest(p.Removals, len(p.Jobs))
	for n := range max(1, len(to)) {
		if n < len(to) {
			r.AddPeer(to[n])
		}
		for i, j := range p.Jobs {
			if i%max(1, len(to)) == n {
				r.Add(j.Record.ID, j.Record.Turn)
			}
		}
	}
	return r
}

// onlyJob is for one job, with its turn.
func onlyJob(removals int64, id job.ID, turn int32) *store.ClaimRequest {
	r := store.NewClaimRequest(removals, 1)
	r.Add(id, turn)
	return r
}

// first is the turn of jobs that have not run.
func (b *bundle) first() int32 { return b.fence.Incarnation }

func columns(p store.Page) (ids []int64, turns []int32) {
	for _, j := range p.Jobs {
		ids = append(ids, int64(j.Record.ID))
		turns = append(turns, j.Record.Turn)
	}
	return ids, turns
}

func counts(t *testing.T, db store.DB) store.Counts {
	c, err := store.Count(t.Context(), db)
	require.NoError(t, err)
	return c
}
