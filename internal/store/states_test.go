package store_test

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// everyPlace are the tables that a job can stand in.
var everyPlace = append(slices.Clone(store.Places), "completed_job")

// stands returns the table that a job stands in, and its row; two rows would be two jobs.
func stands(t *testing.T, db store.DB, id job.ID) (place string, row map[string]any) {
	t.Helper()
	var parts []string
	for _, p := range everyPlace {
		parts = append(parts, fmt.Sprintf("SELECT '%s', to_jsonb(j)::text FROM tenure.%[1]s j WHERE id = $1", p))
	}
	rows, err := db.Query(t.Context(), strings.Join(parts, " UNION ALL "), int64(id))
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		require.Empty(t, place, "job %d stands in two tables", id)
		var text string
		require.NoError(t, rows.Scan(&place, &text))
		require.NoError(t, json.Unmarshal([]byte(text), &row))
	}
	require.NoError(t, rows.Err())
	require.NotEmpty(t, place, "job %d stands nowhere", id)
	return place, row
}

// TestAJobIsTheSameInEveryState takes a job with every column filled through every move, and back.
func TestAJobIsTheSameInEveryState(t *testing.T) {
	t.Parallel()
	b, to := setup(t), second(t)
	ctx := t.Context()
	due := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	id := b.enqueue(t, store.NewJob{Queue: "q", Meta: []byte(`{"by": "me"}`), Priority: 5, MaxAttempts: 9, CorrelationID: "c", UniqueKey: "u", DueAt: due})
	// What no call fills yet.
	_, err := b.db.Exec(ctx, "UPDATE tenure.timer_job SET timeout_ms = 1500, losses = 1, attempt = 2, exclusive_key = 'x', repeat = 'R3/PT1H', end_at = due_at + interval '1 day' WHERE id = $1", int64(id))
	require.NoError(t, err)

	db := store.DB(b.db)
	_, want := stands(t, db, id)
	for column, value := range want {
		require.NotNil(t, value, "column %s is not filled", column)
	}
	turn := want["turn"].(float64)
	// is checks where the job stands, that its turn was raised, and that nothing else has changed
	// but what is said.
	is := func(place string, changes map[string]any) {
		t.Helper()
		at, row := stands(t, db, id)
		require.Equal(t, place, at)
		require.Greater(t, row["turn"], turn, "a run of before would change it")
		turn = row["turn"].(float64)
		maps.Copy(want, changes)
		for column, value := range row {
			switch column {
			case "turn", "position", "ready_at", "suspended_at", "died_at", "finished_at", "outcome", "error", "origin", "resume_at", "started_at", "node":
			default:
				require.Equal(t, want[column], value, "column %s in %s", column, place)
			}
		}
	}
	suspend := func() {
		t.Helper()
		got, err := store.Suspend(ctx, b.db, []int64{int64(id)}, time.Time{})
		require.NoError(t, err)
		require.Equal(t, store.SuspendCount{Suspended: 1}, got)
	}
	resume := func() {
		t.Helper()
		resumed, err := store.Resume(ctx, b.db, []int64{int64(id)})
		require.NoError(t, err)
		require.Len(t, resumed, 1)
	}
	fire := func() {
		t.Helper()
		fired, err := store.FireTimers(ctx, b.db, b.fence, 10)
		require.NoError(t, err)
		require.Len(t, fired, 1)
	}
	run := func(o job.Outcome) {
		t.Helper()
		p := b.page(t, 0)
		require.Len(t, p.Jobs, 1)
		var claims []int64
		for _, c := range b.claim(t, p) {
			claims = append(claims, c)
		}
		lost, err := store.Finish(ctx, b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, []store.Finished{{Record: &p.Jobs[0].Record, Outcome: o}}, claims)
		require.NoError(t, err)
		require.Zero(t, lost)
	}

	suspend()
	is("suspended_job", nil)
	resume()
	is("timer_job", nil)
	fire() // what repeats belongs to timers
	is("job", map[string]any{"repeat": nil, "end_at": nil})
	suspend()
	is("suspended_job", map[string]any{"due_at": nil})
	resume()
	is("job", nil)
	run(job.Outcome{State: job.Retrying, Delay: time.Hour, Err: job.ErrTimeout})
	_, row := stands(t, db, id)
	is("timer_job", map[string]any{"attempt": 3.0, "due_at": row["due_at"]})
	suspend()
	is("suspended_job", nil)
	resume()
	is("timer_job", nil)
	_, err = store.Retry(ctx, b.db, id)
	require.NoError(t, err)
	is("job", nil)
	run(job.Outcome{State: job.Dead, Err: job.ErrTimeout})
	is("dead_letter_job", map[string]any{"attempt": 4.0})
	lanes, taken, err := store.RetryDead(ctx, b.db, b.dead(t, store.DeadFilter{}, 10))
	require.NoError(t, err)
	require.Zero(t, taken)
	require.Len(t, lanes, 1)
	is("job", map[string]any{"attempt": 0.0, "losses": 0.0})
	run(job.Outcome{State: job.Dead, Err: job.ErrTimeout})
	is("dead_letter_job", map[string]any{"attempt": 1.0})
	_, err = store.Retry(ctx, b.db, id)
	require.NoError(t, err)
	is("job", map[string]any{"attempt": 0.0})

	got, err := store.Suspend(ctx, b.db, []int64{int64(id)}, time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, 1, got.Suspended)
	is("suspended_job", map[string]any{"due_at": nil})
	_, row = stands(t, db, id)
	moveTenant(t, b.db, to)
	db = to
	is("suspended_job", nil)
	_, there := stands(t, db, id)
	require.Equal(t, row["resume_at"], there["resume_at"])
	require.NotNil(t, there["resume_at"])
	resumed, err := store.Resume(ctx, to, []int64{int64(id)})
	require.NoError(t, err)
	require.Len(t, resumed, 1)
	is("job", nil)

	b = holds(t, to)
	finished := map[string]any{"attempt": 1.0, "turn": turn + 1}
	turn-- // a finished job keeps its turn
	run(job.Outcome{State: job.Done})
	is("completed_job", finished)
}

// holds opens a session in another pool and takes its lock.
func holds(t *testing.T, db *pgxpool.Pool) *bundle {
	t.Helper()
	session := openSession(t, db, "a")
	mine, l, err := store.TakeLock(t.Context(), db, store.Claimant{Session: session, Member: "a", SeenSeq: -1}, ttl)
	require.NoError(t, err)
	require.True(t, mine)
	return &bundle{db: db, owner: db, fence: store.Fence{Session: session, Epoch: l.Epoch, Incarnation: l.Incarnation}}
}

// moveTenant moves acme's jobs from one pool to another.
func moveTenant(t *testing.T, from, to *pgxpool.Pool) {
	t.Helper()
	ctx := t.Context()
	m := store.Move{Tenant: "acme", Mover: uuid.New()}
	_, err := m.Begin(ctx, from, "other")
	require.NoError(t, err)
	require.NoError(t, m.Arrive(ctx, to, "other", false))
	require.NoError(t, m.Close(ctx, from, "other"))
	ends := store.Ends{From: from, To: to}
	require.NoError(t, m.Jobs(ctx, ends, func(context.Context) error { return nil }, func(string, int) {}))
	require.NoError(t, m.Open(ctx, to))
	require.NoError(t, m.Finished(ctx, ends, func(int) {}))
}

// exceptions are columns that a statement leaves to their default, by the table they are in, and why.
var exceptions = map[string][]string{
	"job":             {"position", "ready_at"},                                                // each move goes to the end of the queue, and the job can start from now on
	"timer_job":       {"repeat", "end_at"},                                                    // a job that is put off does not repeat
	"external_job":    {"position", "ready_at", "locked_by", "lock_expires_at", "acquired_at"}, // likewise; only a tenant that moves keeps a lock
	"suspended_job":   {"suspended_at"},                                                        // now
	"dead_letter_job": {"died_at"},                                                             // now
}

// TestStatementsMoveEveryColumn: no statement that moves jobs forgets a column of the table they
// come into. That each reads as many columns as it writes Postgres sees when it prepares them.
func TestStatementsMoveEveryColumn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	columns := map[string][]string{}
	for _, place := range store.Places {
		rows, err := b.owner.Query(t.Context(), "SELECT attname FROM pg_attribute WHERE attrelid = ('tenure.' || $1)::regclass AND attnum > 0 AND NOT attisdropped", place)
		require.NoError(t, err)
		for rows.Next() {
			var name string
			require.NoError(t, rows.Scan(&name))
			columns[place] = append(columns[place], name)
		}
		require.NoError(t, rows.Err())
	}
	texts := map[string]string{}
	for pattern, in := range map[string]embed.FS{"queries/*.sql": store.QueryFiles, "functions/*.sql": store.LedgerFiles} { // functions move jobs, too
		files, err := fs.Glob(in, pattern)
		require.NoError(t, err)
		for _, f := range files {
			text, err := in.ReadFile(f)
			require.NoError(t, err)
			texts[f] = store.Fill(string(text))
		}
	}
	insert := regexp.MustCompile(`INSERT INTO tenure\.(\w+) \(([^)]*)\)`)
	found := 0
	for f, text := range texts {
		if strings.HasPrefix(path.Base(f), "schedule_") || f == "functions/add_job.sql" {
			continue // they add jobs, and move none
		}
		for _, m := range insert.FindAllStringSubmatch(text, -1) {
			place, listed := m[1], strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
			all := columns[place]
			if all == nil {
				continue // no table that jobs move into
			}
			found++
			for _, c := range all {
				if !slices.Contains(exceptions[place], c) && !slices.Contains(listed, c) {
					t.Errorf("%s adds rows to tenure.%s without column %s: a job that moves there would lose it", f, place, c)
				}
			}
		}
	}
	require.GreaterOrEqual(t, found, 15, "the statements are not found any more")
}
