//go:build unix

package store_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
)

// patience is for what takes milliseconds to seconds on an idle machine.
const patience = 30 * time.Second

// fallen is a ledger on a server of its own that is taken back to an earlier state.
type fallen struct {
	t      *testing.T
	server *devpg.Server
	data   string        // the server's directory
	saved  string        // where way.save puts what way.fall goes back to, beside data
	other  *devpg.Server // of way.save
	lose   func()        // of way.save
	db     *pgxpool.Pool
}

// way is one in which a ledger, and with it its sequences, falls back.
type way struct {
	name     string
	settings map[string]string
	save     func(*fallen) // the state that it is taken back to
	fall     func(*fallen)
	behind   bool // the sequences are behind the rows afterwards, in an incarnation that has begun
}

var ways = []way{
	{name: "the server crashes", settings: pgtest.Unflushed, save: func(f *fallen) {
		f.lose = pgtest.Unwritten(f.t, f.server)
	}, fall: func(f *fallen) {
		f.lose()
		require.NoError(f.t, f.server.Crash(f.t.Context()))
		require.NoError(f.t, f.server.Resume(f.t.Context()))
	}},
	{name: "one of its processes crashes", settings: pgtest.Unflushed, save: func(f *fallen) {
		f.lose = pgtest.Unwritten(f.t, f.server)
	}, fall: func(f *fallen) { f.lose() }},
	{name: "a standby that lags is promoted", save: func(f *fallen) {
		standby := pgtest.Standby(f.t, f.server)
		require.NoError(f.t, standby.Halt(f.t.Context()))
		f.other = standby
	}, fall: func(f *fallen) {
		require.NoError(f.t, f.server.Crash(f.t.Context()))
		f.server = f.other
		require.NoError(f.t, f.server.Resume(f.t.Context()))
		f.admin("SELECT pg_promote()")
	}},
	{name: "a dump is restored", save: func(f *fallen) {
		f.tool("pg_dump", "--format", "custom", "--file", f.saved, f.server.DSN("p1"))
	}, fall: func(f *fallen) {
		f.recreate()
		f.tool("pg_restore", "--dbname", f.server.DSN("p1"), f.saved)
	}},
	{name: "rows are restored", behind: true, save: func(f *fallen) {
		f.tool("pg_dump", "--format", "custom", "--data-only", "--table", "tenure.job", "--table", "tenure.incarnation", "--file", f.saved, f.server.DSN("p1"))
	}, fall: func(f *fallen) {
		f.recreate()
		require.NoError(f.t, storetest.Prepare(f.t.Context(), f.server.DSN("p1"), "p1", 1))
		f.tool("pg_restore", "--exit-on-error", "--dbname", f.server.DSN("p1"), f.saved)
	}},
	{name: "it is restored to a time", save: func(f *fallen) {
		f.tool("pg_basebackup", "--pgdata", f.saved, "--checkpoint", "fast", "--no-sync", "--dbname", f.server.DSN("postgres"))
		f.admin("SELECT pg_create_restore_point('here')")
	}, fall: func(f *fallen) {
		f.replaceData()
		f.write("recovery.signal", "")
		f.write("postgresql.auto.conf", fmt.Sprintf("restore_command = 'cp %s.former/pg_wal/%%f %%p'\nrecovery_target_name = 'here'\nrecovery_target_action = 'promote'\n", f.data))
		require.NoError(f.t, f.server.Resume(f.t.Context()))
		f.until("SELECT NOT pg_is_in_recovery()")
	}},
	{name: "a logical replica takes over", behind: true, settings: map[string]string{"wal_level": "logical"}, save: func(f *fallen) {
		require.NoError(f.t, f.server.CreateDatabase(f.t.Context(), "replica"))
		require.NoError(f.t, storetest.Prepare(f.t.Context(), f.server.DSN("replica"), "p1", 1))
		f.in("p1", "CREATE PUBLICATION ledger FOR TABLE tenure.job, tenure.claim, tenure.node_session",
			"SELECT pg_create_logical_replication_slot('ledger', 'pgoutput')")
		f.in("replica", fmt.Sprintf("CREATE SUBSCRIPTION ledger CONNECTION '%s' PUBLICATION ledger WITH (create_slot = false, slot_name = 'ledger')", f.server.DSN("p1")))
		require.Eventually(f.t, func() bool {
			conn, err := pgx.Connect(f.t.Context(), f.server.DSN("replica"))
			if err != nil {
				return false
			}
			defer conn.Close(context.WithoutCancel(f.t.Context()))
			var ready bool
			return conn.QueryRow(f.t.Context(), "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel").Scan(&ready) == nil && ready
		}, patience, 10*time.Millisecond)
		f.in("replica", "ALTER SUBSCRIPTION ledger DISABLE", "ALTER SUBSCRIPTION ledger SET (slot_name = NONE)", "DROP SUBSCRIPTION ledger")
	}, fall: func(f *fallen) {
		require.NoError(f.t, f.server.CloseDatabase(f.t.Context(), "p1"))
		f.admin("ALTER DATABASE p1 RENAME TO former", "ALTER DATABASE replica RENAME TO p1")
	}},
	{name: "a cold copy takes the server's place", save: func(f *fallen) {
		require.NoError(f.t, f.server.Halt(f.t.Context()))
		require.NoError(f.t, exec.Command("cp", "-a", f.data, f.saved).Run())
		require.NoError(f.t, f.server.Resume(f.t.Context()))
	}, fall: func(f *fallen) {
		f.replaceData()
		require.NoError(f.t, f.server.Resume(f.t.Context()))
	}},
	{name: "a clone takes the database's place", save: func(f *fallen) {
		require.NoError(f.t, f.server.CloneDatabase(f.t.Context(), "p1", "clone"))
	}, fall: func(f *fallen) {
		require.NoError(f.t, f.server.DropDatabase(f.t.Context(), "p1"))
		f.admin("ALTER DATABASE clone RENAME TO p1")
	}},
}

func (f *fallen) in(database string, statements ...string) {
	conn, err := pgx.Connect(f.t.Context(), f.server.DSN(database))
	require.NoError(f.t, err)
	defer conn.Close(context.WithoutCancel(f.t.Context()))
	for _, sql := range statements {
		_, err := conn.Exec(f.t.Context(), sql)
		require.NoError(f.t, err, sql)
	}
}

func (f *fallen) admin(statements ...string) { f.in("postgres", statements...) }

// until waits until the database answers, and a query returns true.
func (f *fallen) until(sql string) {
	require.Eventually(f.t, func() bool {
		conn, err := pgx.Connect(f.t.Context(), f.server.DSN("p1"))
		if err != nil {
			return false
		}
		defer conn.Close(context.WithoutCancel(f.t.Context()))
		var yes bool
		return conn.QueryRow(f.t.Context(), sql).Scan(&yes) == nil && yes
	}, patience, 10*time.Millisecond)
}

// tool runs a program that comes with the server.
func (f *fallen) tool(name string, args ...string) {
	out, err := exec.CommandContext(f.t.Context(), pgtest.Program(f.t, name), args...).CombinedOutput()
	require.NoError(f.t, err, "%s", out)
}

func (f *fallen) recreate() {
	require.NoError(f.t, f.server.DropDatabase(f.t.Context(), "p1"))
	require.NoError(f.t, f.server.CreateDatabase(f.t.Context(), "p1"))
}

// replaceData ends the server and puts what was saved in the place of its directory.
func (f *fallen) replaceData() {
	require.NoError(f.t, f.server.Halt(f.t.Context()))
	info, err := os.Stat(f.data)
	require.NoError(f.t, err)
	owner := info.Sys().(*syscall.Stat_t)
	require.NoError(f.t, os.Rename(f.data, f.data+".former"))
	require.NoError(f.t, os.Rename(f.saved, f.data))
	require.NoError(f.t, filepath.Walk(f.data, func(path string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(owner.Uid), int(owner.Gid))
	}))
}

// write appends to a file in the server's directory.
func (f *fallen) write(name, text string) {
	file, err := os.OpenFile(filepath.Join(f.data, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(f.t, err)
	_, err = file.WriteString(text)
	require.NoError(f.t, err)
	require.NoError(f.t, file.Close())
}

// reopen connects again, once the database answers.
func (f *fallen) reopen() {
	if f.db != nil {
		f.db.Close()
	}
	f.until("SELECT true")
	db, err := pgxpool.New(f.t.Context(), f.server.DSN("p1"))
	require.NoError(f.t, err)
	f.t.Cleanup(db.Close)
	f.db = db
}

// takeLock takes the lock for a new session, from anyone who holds it.
func (f *fallen) takeLock() *bundle {
	l, err := store.ReadLock(f.t.Context(), f.db)
	require.NoError(f.t, err)
	id := openSession(f.t, f.db, "n-"+uuid.NewString()[:8])
	mine, l, err := store.TakeLock(f.t.Context(), f.db, store.Claimant{Session: id, Member: "n", SeenSeq: l.RenewSeq, HolderGone: true}, time.Hour)
	require.NoError(f.t, err)
	require.True(f.t, mine)
	return &bundle{db: f.db, fence: store.Fence{Session: id, Epoch: l.Epoch, Incarnation: l.Incarnation}}
}

// stands tells whether the lock was taken in the present incarnation.
func (b *bundle) stands(t *testing.T) bool {
	incarnation, err := store.ReadIncarnation(t.Context(), b.db)
	require.NoError(t, err)
	return incarnation == b.fence.Incarnation
}

// enqueue adds n jobs in each of three ways, and returns how many that are.
func (f *fallen) enqueue(n int) int {
	one := store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("1")}
	many := make([]store.NewJob, n)
	for i := range many {
		_, _, err := store.Enqueue(f.t.Context(), f.db.QueryRow, 1, &one)
		require.NoError(f.t, err)
		many[i] = one
	}
	require.NoError(f.t, pgx.BeginFunc(f.t.Context(), f.db, func(tx pgx.Tx) error {
		return store.EnqueueMany(f.t.Context(), tx, 1, many)
	}))
	_, err := f.db.Exec(f.t.Context(), "INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT 'acme', 'default', 'k', '2' FROM generate_series(1, $1)", n)
	require.NoError(f.t, err)
	return 3 * n
}

// runs are jobs as a node that runs them knows them.
func (f *fallen) runs() (runs []store.Finished, known map[job.ID]int32) {
	rows, err := f.db.Query(f.t.Context(), "SELECT id, turn FROM tenure.job")
	require.NoError(f.t, err)
	known = map[job.ID]int32{}
	r := job.Record{Kind: "k", Tenant: "acme", Queue: "default", Attempt: 1}
	_, err = pgx.ForEachRow(rows, []any{&r.ID, &r.Turn}, func() error {
		one := r
		runs = append(runs, store.Finished{Record: &one, Outcome: job.Outcome{State: job.Done}})
		known[r.ID] = r.Turn
		return nil
	})
	require.NoError(f.t, err)
	return runs, known
}

// TestTurnsNeverRepeat: jobs are lost with what made the sequences fall back, so that others
// get their ids. Whatever a node that lives reports of the lost ones, it ends none of the
// others; and what it remembers as the lock's holder counts for nothing.
func TestTurnsNeverRepeat(t *testing.T) {
	t.Parallel()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f := &fallen{t: t, server: pgtest.Server(t, devpg.Options{Durable: true, InMemory: true, SharedBuffers: "64MB", Settings: w.settings})}
			require.NoError(t, f.server.CreateDatabase(t.Context(), "p1"))
			require.NoError(t, storetest.Prepare(t.Context(), f.server.DSN("p1"), "p1", 1))
			f.reopen()
			require.NoError(t, f.db.QueryRow(t.Context(), "SHOW data_directory").Scan(&f.data))
			f.saved = filepath.Join(filepath.Dir(f.data), "saved")
			kept := f.enqueue(5)
			_, before := f.runs()
			old := f.takeLock()
			f.db.Close()
			w.save(f)
			f.reopen()

			f.enqueue(20) // perhaps before an incarnation has begun
			if old.db = f.db; !old.stands(t) {
				old = f.takeLock()
			}
			f.enqueue(20)
			lost, known := f.runs()
			old.claim(t, old.page(t, 0))
			for id := range before {
				delete(known, id)
			}
			f.db.Close()
			w.fall(f)
			f.reopen()
			require.Equal(t, kept, f.count("job"), "the others are lost")

			if !w.behind { // their ids are taken, as they would be for anybody's rows
				kept += f.enqueue(15)
			}
			_, err := store.InsertClaims(t.Context(), f.db, old.fence, onlyJob(0, 1, 1))
			require.ErrorIs(t, err, store.ErrFenced)
			_, err = store.RenewLock(t.Context(), f.db, old.fence, time.Hour, time.Hour)
			require.Error(t, err)
			holder := f.takeLock()
			_, mended, err := store.BeginIncarnation(t.Context(), f.db, true)
			require.NoError(t, err)
			require.Equal(t, w.behind, mended)
			if mended {
				_, err := store.RenewLock(t.Context(), f.db, holder.fence, time.Hour, time.Hour)
				require.ErrorIs(t, err, store.ErrNewIncarnation, "its cursors are beyond the new jobs")
				holder = f.takeLock()
				_, mended, err := store.BeginIncarnation(t.Context(), f.db, true)
				require.NoError(t, err)
				require.False(t, mended, "they are not behind any more")
			}
			kept += f.enqueue(15)

			_, now := f.runs()
			require.Len(t, now, kept)
			again := 0
			for id, turn := range known {
				if other, stands := now[id]; stands {
					again++
					require.NotEqual(t, turn, other, "job %v", id)
				}
			}
			require.Equal(t, !mended, again > 0, "%d ids were given out again", again)
			t.Logf("%d of %d ids were given out again", again, len(known))

			// It reports, and so does everybody else who had claimed anything.
			_, err = store.Finish(t.Context(), f.db, store.Runner{Session: old.fence.Session, Node: "n"}, true, only(lost, known), nil)
			require.NoError(t, err)
			require.Equal(t, kept, f.count("job"), "none that has not run is finished")
			require.Zero(t, f.count("completed_job"))
			seen := map[int64]bool{}
			page := holder.page(t, 0)
			require.NotEmpty(t, page.Jobs)
			for _, claim := range holder.claim(t, page) {
				seen[claim] = true
			}
			standing, err := store.Claims(t.Context(), f.db)
			require.NoError(t, err)
			require.Len(t, standing, len(seen))
		})
	}
}

// only leaves the runs of some jobs.
func only(runs []store.Finished, jobs map[job.ID]int32) (out []store.Finished) {
	for _, r := range runs {
		if _, ok := jobs[r.Record.ID]; ok {
			out = append(out, r)
		}
	}
	return out
}

func (f *fallen) count(table string) (n int) {
	require.NoError(f.t, f.db.QueryRow(f.t.Context(), "SELECT count(*) FROM tenure."+table).Scan(&n))
	return n
}

// A run that outlives a restart that lost nothing is reported as ever.
func TestReportsOutliveARestart(t *testing.T) {
	t.Parallel()
	f := &fallen{t: t, server: pgtest.Server(t, devpg.Options{})}
	require.NoError(t, f.server.CreateDatabase(t.Context(), "p1"))
	require.NoError(t, storetest.Prepare(t.Context(), f.server.DSN("p1"), "p1", 1))
	f.reopen()
	b := f.takeLock()
	n := f.enqueue(2)
	runs, _ := f.runs()
	claim := b.claim(t, b.page(t, 0))[b.first()]
	f.db.Close()
	require.NoError(t, f.server.Restart(t.Context(), false))
	f.reopen()
	require.NotEqual(t, b.first(), f.takeLock().first())
	lost, err := store.Finish(t.Context(), f.db, store.Runner{Session: b.fence.Session, Node: "n"}, true, runs, []int64{claim})
	require.NoError(t, err)
	require.Zero(t, lost)
	require.Equal(t, n, f.count("completed_job"))
}

// What says that an incarnation has begun is true of it only as it was written.
func TestACopiedIncarnationHasNotBegun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	read := func() int32 {
		incarnation, err := store.ReadIncarnation(t.Context(), b.db)
		require.NoError(t, err)
		return incarnation
	}
	require.Equal(t, b.first(), read())
	_, err := b.db.Exec(t.Context(), "CREATE TEMP TABLE kept AS SELECT * FROM tenure.incarnation; DELETE FROM tenure.incarnation; INSERT INTO tenure.incarnation SELECT * FROM kept")
	require.NoError(t, err)
	require.Zero(t, read(), "it was restored")
	again, mended, err := store.BeginIncarnation(t.Context(), b.db, false)
	require.NoError(t, err)
	require.False(t, mended)
	require.NotEqual(t, b.first(), again)
	same, _, err := store.BeginIncarnation(t.Context(), b.db, true)
	require.NoError(t, err)
	require.Equal(t, again, same)
	_, err = b.db.Exec(t.Context(), "VACUUM FREEZE tenure.incarnation")
	require.NoError(t, err)
	require.Equal(t, again, read())
}

// While the clock is behind an earlier incarnation, the next ones begin beyond that.
func TestIncarnationsWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var moment int64
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT setval('tenure.incarnation_moment', last_value + 1000000) FROM tenure.incarnation_moment").Scan(&moment))
	begun := map[int32]bool{b.first(): true}
	for range 3 {
		_, err := b.db.Exec(t.Context(), "DELETE FROM tenure.incarnation")
		require.NoError(t, err)
		first, _, err := store.BeginIncarnation(t.Context(), b.db, false)
		require.NoError(t, err)
		require.NotContains(t, begun, first)
		begun[first] = true
		last := moment
		require.NoError(t, b.db.QueryRow(t.Context(), "SELECT last_value FROM tenure.incarnation_moment").Scan(&moment))
		require.GreaterOrEqual(t, moment, last+4096)
	}
}

// Anyone who may insert jobs may do so in every incarnation, but only who may take the lock
// may begin one.
func TestWhoMayBeginAnIncarnation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role := "tenure_" + uuid.NewString()[:8]
	quoted := pgx.Identifier{role}.Sanitize()
	_, err := b.owner.Exec(t.Context(), fmt.Sprintf("CREATE ROLE %[1]s; GRANT USAGE ON SCHEMA tenure TO %[1]s; GRANT INSERT ON tenure.job TO %[1]s; GRANT USAGE ON ALL SEQUENCES IN SCHEMA tenure TO %[1]s", quoted))
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := b.owner.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", quoted))
		require.NoError(t, err)
	})
	as := func(sql string) error {
		return pgx.BeginFunc(t.Context(), b.owner, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE "+quoted); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), sql)
			return err
		})
	}
	const insert = "INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('acme', 'default', 'k', '1')"
	require.NoError(t, as(insert))
	_, err = b.db.Exec(t.Context(), "DELETE FROM tenure.incarnation")
	require.NoError(t, err)
	require.NoError(t, as(insert))
	require.ErrorContains(t, as("SELECT tenure.begin_incarnation(false)"), "permission denied")
	var turns []int32
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT array_agg(turn ORDER BY id) FROM tenure.job").Scan(&turns))
	require.Equal(t, b.first(), turns[0])
	require.GreaterOrEqual(t, turns[1], int32(1_600_000_000), "its own")
}

// Ids of claims go up only, also when an incarnation begins while no claim stands and the
// sequence is ahead of the clock's moment.
func TestClaimIDsNeverGoBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const far = 1 << 60
	execute(t, b.owner, "SELECT setval(pg_get_serial_sequence('tenure.claim', 'id'), $1)", int64(far))
	execute(t, b.owner, "DELETE FROM tenure.incarnation")
	begun, _, err := store.BeginIncarnation(t.Context(), b.db, false)
	require.NoError(t, err)
	b.fence.Incarnation = begun
	b.enqueue(t, store.NewJob{})
	for _, id := range b.claim(t, b.page(t, 0)) {
		require.Greater(t, id, int64(far))
	}
}
