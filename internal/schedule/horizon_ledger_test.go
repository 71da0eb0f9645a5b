package schedule

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
)

// writer is a session that adds jobs, in transactions of its own making.
type writer struct {
	conn    *pgx.Conn
	open    bool       // a transaction
	first   int64      // position that it has drawn in it; 0: none
	held    int64      // the lock that its INSERT waits for, with its position drawn; 0: none
	waiting chan error // of that INSERT
}

// floorBed is a ledger with writers, and a holder of the lock that looks back and claims.
type floorBed struct {
	db      *pgxpool.Pool
	writers []*writer
	locks   *pgx.Conn // holds what INSERTs wait for
	keys    int64
	fence   store.Fence
	job     int64 // what is claimed
	horizon *Horizon
}

func newFloorBed(t *testing.T) *floorBed {
	dsn := storetest.DSN(t, "main", 1)
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		return conn
	}
	b := &floorBed{locks: connect()}
	for range 3 {
		b.writers = append(b.writers, &writer{conn: connect()})
	}
	var err error
	b.db, err = pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(b.db.Close)
	session := store.Session{ID: uuid.New(), Node: "a", Member: "a"}
	require.NoError(t, store.OpenSession(t.Context(), b.db, session, time.Hour))
	mine, l, err := store.TakeLock(t.Context(), b.db, store.Claimant{Session: session.ID, Member: "a", SeenSeq: -1}, time.Hour)
	require.NoError(t, err)
	require.True(t, mine)
	b.fence = store.Fence{Session: session.ID, Epoch: l.Epoch, Incarnation: l.Incarnation}
	require.NoError(t, b.db.QueryRow(t.Context(), insertSQL("'1'", "id")).Scan(&b.job))
	return b
}

// insertSQL adds a job without giving its position.
func insertSQL(payload, returning string) string {
	return fmt.Sprintf("INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('acme', 'default', 'k', %s) RETURNING %s", payload, returning)
}

func (b *floorBed) exec(t require.TestingT, w *writer, sql string) {
	_, err := w.conn.Exec(context.Background(), sql)
	require.NoError(t, err)
}

func (b *floorBed) begin(t require.TestingT, w *writer) {
	if !w.open {
		b.exec(t, w, "BEGIN")
		w.open = true
	}
}

func (b *floorBed) insert(t require.TestingT, w *writer) {
	if w.waiting != nil {
		return
	}
	var position int64
	require.NoError(t, w.conn.QueryRow(context.Background(), insertSQL("'1'", "position")).Scan(&position))
	if w.open && w.first == 0 {
		w.first = position
	}
}

// insertSlowly begins an INSERT whose payload takes long to work out: it waits, with its
// position drawn, until proceed.
func (b *floorBed) insertSlowly(t require.TestingT, w *writer) {
	if w.waiting != nil {
		return
	}
	b.keys++
	w.held = b.keys
	_, err := b.locks.Exec(context.Background(), "SELECT pg_advisory_lock($1)", w.held)
	require.NoError(t, err)
	waiting := make(chan error, 1)
	w.waiting = waiting
	sql := insertSQL(fmt.Sprintf("to_jsonb(pg_advisory_xact_lock_shared(%d)::text)", w.held), "1")
	go func() {
		_, err := w.conn.Exec(context.Background(), sql)
		waiting <- err
	}()
	require.Eventually(t, func() bool {
		var waits bool
		err := b.locks.QueryRow(context.Background(), "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $1)", w.held).Scan(&waits)
		return err == nil && waits
	}, patience, 200*time.Microsecond)
	if w.first == 0 { // nobody else has drawn one meanwhile
		require.NoError(t, b.locks.QueryRow(context.Background(), "SELECT last_value FROM tenure.job_position").Scan(&w.first))
	}
}

func (b *floorBed) proceed(t require.TestingT, w *writer) {
	if w.waiting == nil {
		return
	}
	_, err := b.locks.Exec(context.Background(), "SELECT pg_advisory_unlock($1)", w.held)
	require.NoError(t, err)
	require.NoError(t, <-w.waiting)
	w.waiting = nil
	if !w.open { // the INSERT was its transaction
		w.first = 0
	}
}

func (b *floorBed) end(t require.TestingT, w *writer, how string) {
	b.proceed(t, w)
	if w.open {
		b.exec(t, w, how)
		w.open, w.first = false, 0
	}
}

// look looks back, as a term does once a second, and compares the floor with what is open.
func (b *floorBed) look(t require.TestingT) {
	s, _, err := store.LookBack(context.Background(), b.db, store.BackRequest{Behind: b.horizon.Floor()})
	require.NoError(t, err)
	b.horizon.Observe(s)
	for i, w := range b.writers {
		if w.first > 0 {
			require.Less(t, b.horizon.rising, w.first, "the floor passes what writer %d has drawn and not committed", i)
		}
	}
}

// claim claims a job, as a term does all the time.
func (b *floorBed) claim(t require.TestingT) {
	r := store.NewClaimRequest(0, 1)
	r.Add(job.ID(b.job), b.fence.Incarnation)
	claimed, err := store.InsertClaims(context.Background(), b.db, b.fence, r)
	require.NoError(t, err)
	b.horizon.BoundBy(claimed[0].XID)
}

// TestFloorStaysBelowOpenTransactions: whatever transactions do to get ids and positions,
// in whatever order, the floor under the cursors stays below every position that is drawn
// by one that has not ended.
func TestFloorStaysBelowOpenTransactions(t *testing.T) {
	t.Parallel()
	b := newFloorBed(t)
	rapid.Check(t, func(t *rapid.T) {
		b.horizon = NewHorizon()
		defer func() {
			for _, w := range b.writers {
				b.end(t, w, "ROLLBACK")
			}
		}()
		for range rapid.IntRange(5, 25).Draw(t, "steps") {
			w := b.writers[rapid.IntRange(0, len(b.writers)-1).Draw(t, "writer")]
			switch rapid.SampledFrom([]string{"begin", "insert", "slow", "proceed", "id", "savepoint", "commit", "rollback", "look", "look", "claim", "claim"}).Draw(t, "step") {
			case "begin":
				if w.waiting == nil {
					b.begin(t, w)
				}
			case "insert":
				b.insert(t, w)
			case "slow":
				b.insertSlowly(t, w)
			case "proceed":
				b.proceed(t, w)
			case "id":
				if w.open && w.waiting == nil {
					b.exec(t, w, "SELECT pg_current_xact_id()")
				}
			case "savepoint":
				if w.open && w.waiting == nil {
					b.exec(t, w, "SAVEPOINT s")
					b.insert(t, w)
				}
			case "commit":
				b.end(t, w, "COMMIT")
			case "rollback":
				b.end(t, w, "ROLLBACK")
			case "look":
				b.look(t)
			case "claim":
				b.claim(t)
			}
		}
	})
	b.horizon = NewHorizon()
	for range 3 {
		b.insert(t, b.writers[0])
		b.claim(t)
		b.look(t)
	}
	require.Positive(t, b.horizon.rising, "with nothing open it does rise")
}
