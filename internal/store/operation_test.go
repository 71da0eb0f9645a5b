package store_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// Several who think that they hold the lock carry out an operation at the same time: no dead letter is
// counted, or retried, twice, and none is left out.
func TestStepsOfAnOperationAreDoneOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 60
	for i := range n {
		b.deadLetter(t, []string{"", "died_at = now() + interval '1 day'", "died_at = 'infinity'"}[i%3]) // when the clock ran ahead; by hand
	}
	count := func(sql string) (n int) {
		require.NoError(t, b.db.QueryRow(t.Context(), sql).Scan(&n))
		return n
	}
	id := uuid.New()
	require.NoError(t, store.AddOperation(t.Context(), b.db, store.Operation{ID: id, Action: store.RetryDeadLetters, By: "me"}))
	require.NoError(t, store.AddOperation(t.Context(), b.db, store.Operation{ID: id, Action: store.DeleteDeadLetters, By: "you"}), "a reply was lost: it stays as it is")
	b.deadLetter(t, "died_at = clock_timestamp()") // after it was asked for
	var risen atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for some := true; some; {
				lanes, err := store.StepOperation(t.Context(), b.db, store.Stepper{Most: 7, Text: 100})
				if !assert.NoError(t, err) {
					return
				}
				risen.Add(int64(len(lanes)))
				due, err := store.OperationDue(t.Context(), b.db)
				if some = due.Some; !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	group.Wait()
	require.EqualValues(t, n, risen.Load())
	all, err := store.Operations(t.Context(), b.db, id, 10)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, []any{"retry", "me", "done", int64(n), int64(0), int64(0)}, []any{all[0].Action, all[0].By, all[0].State, all[0].Done, all[0].KeyTaken, all[0].Left})
	require.Equal(t, n, count("SELECT count(*) FROM tenure.job WHERE turn = 8"))
	require.Equal(t, 1, count("SELECT count(*) FROM tenure.dead_letter_job"))

	for _, action := range []string{store.RetryDeadLetters, store.CancelJobs} { // a holder that dozes sees either
		execute(t, b.owner, "DELETE FROM tenure.job")
		idle, err := store.LookIdle(t.Context(), b.db)
		require.NoError(t, err)
		require.False(t, idle.Waiting)
		begun := uuid.New()
		require.NoError(t, store.AddOperation(t.Context(), b.db, store.Operation{ID: begun, Action: action, By: "me"}))
		idle, err = store.LookIdle(t.Context(), b.db)
		require.NoError(t, err)
		require.True(t, idle.Waiting, action)
		execute(t, b.owner, "DELETE FROM tenure.operation WHERE id = '"+begun.String()+"'")
	}

	require.NoError(t, store.TrimOperations(t.Context(), b.db, time.Hour))
	require.Equal(t, 1, count("SELECT count(*) FROM tenure.operation"), "it has ended a moment ago")
	require.NoError(t, store.TrimOperations(t.Context(), b.db, 0))
	require.Equal(t, 0, count("SELECT count(*) FROM tenure.operation"))
}

// Of dead letters an operation takes those that have its tag and correlation id.
func TestWhichDeadLettersAreDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	both, one, tagged := b.deadLetter(t, "correlation_id = 'order'"), b.deadLetter(t, "correlation_id = 'order'"), b.deadLetter(t, "correlation_id = 'other'")
	execute(t, b.owner, fmt.Sprintf("INSERT INTO tenure.job_tag (tenant_id, tag, job_id) VALUES ('acme', 'eu', %d), ('acme', 'eu', %d), ('globex', 'eu', %d), ('acme', 'us', %[3]d)", both, tagged, one))
	require.NoError(t, store.AddOperation(t.Context(), b.db, store.Operation{ID: uuid.New(), Action: store.DeleteDeadLetters, By: "me", Jobs: store.ChosenJobs{Tag: "eu", CorrelationID: "order"}}))
	var group string
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT dead_group FROM tenure.operation").Scan(&group))
	require.Equal(t, "+", group, "programs of before, which would not heed tags, find none in that group")
	for {
		_, err := store.StepOperation(t.Context(), b.db, store.Stepper{Most: 7, Text: 100})
		require.NoError(t, err)
		if due, err := store.OperationDue(t.Context(), b.db); err != nil || !due.Some {
			require.NoError(t, err)
			break
		}
	}
	require.ElementsMatch(t, []job.ID{one, tagged}, idsOf(b.dead(t, store.DeadFilter{}, 100)))
	require.ElementsMatch(t, []job.ID{one}, idsOf(b.dead(t, store.DeadFilter{CorrelationID: "order"}, 100)))
	require.ElementsMatch(t, []job.ID{tagged}, idsOf(b.dead(t, store.DeadFilter{Tag: "eu"}, 100)))
}

// An operation whose steps fail keeps no other from its own, and no other is said to have failed.
func TestAFailedStepLetsOthersGoFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deadLetter(t, "")
	fails, other := uuid.New(), uuid.New()
	for _, id := range []uuid.UUID{fails, other} {
		require.NoError(t, store.AddOperation(t.Context(), b.db, store.Operation{ID: id, Action: store.RetryDeadLetters, By: "me"}))
	}
	require.NoError(t, store.NoteFailure(t.Context(), b.db, store.ErrLocked)) // of the first one's step
	lanes, err := store.StepOperation(t.Context(), b.db, store.Stepper{Most: 500, Text: 100})
	require.NoError(t, err)
	require.Len(t, lanes, 1)
	for id, failure := range map[uuid.UUID]string{fails: store.ErrLocked.Error(), other: ""} {
		all, err := store.Operations(t.Context(), b.db, id, 1)
		require.NoError(t, err)
		require.Equal(t, failure, all[0].Failure)
		require.Equal(t, id == other, all[0].Done == 1)
	}
}

// A rate makes steps small and sets them apart; one that fails says why until one succeeds; a job whose key is
// taken is counted.
func TestStepsKeepToTheRate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 5 {
		b.deadLetter(t, "")
	}
	b.deadLetter(t, "unique_key = 'taken'")
	_, err := b.db.Exec(t.Context(), "INSERT INTO tenure.unique_job (tenant_id, key, job_id) VALUES ('acme', 'taken', 4711)")
	require.NoError(t, err)
	id := uuid.New()
	require.NoError(t, store.AddOperation(t.Context(), b.db, store.Operation{ID: id, Action: store.RetryDeadLetters, PerSecond: 0.01, By: "me"}))
	require.NoError(t, store.NoteFailure(t.Context(), b.db, store.ErrLocked))
	get := func() store.Operation {
		all, err := store.Operations(t.Context(), b.db, id, 1)
		require.NoError(t, err)
		return all[0]
	}
	require.Equal(t, store.ErrLocked.Error(), get().Failure)
	_, err = b.db.Exec(t.Context(), "UPDATE tenure.operation SET next_at = clock_timestamp()")
	require.NoError(t, err)
	lanes, err := store.StepOperation(t.Context(), b.db, store.Stepper{Most: 500, Text: 100})
	require.NoError(t, err)
	require.Equal(t, []store.Lane{{Queue: "q", Tenant: "acme", Priority: 3}}, lanes)
	require.Empty(t, get().Failure)
	due, err := store.OperationDue(t.Context(), b.db)
	require.NoError(t, err)
	require.True(t, due.Some)
	require.True(t, due.Paced)
	require.Greater(t, due.In, 30*time.Second, "one in a hundred seconds")
	lanes, err = store.StepOperation(t.Context(), b.db, store.Stepper{Most: 500, Text: 100})
	require.NoError(t, err)
	require.Empty(t, lanes, "it is not due")
	_, err = b.db.Exec(t.Context(), "UPDATE tenure.operation SET next_at = clock_timestamp() - interval '90 s'")
	require.NoError(t, err)
	_, err = store.StepOperation(t.Context(), b.db, store.Stepper{Most: 500, Text: 100})
	require.NoError(t, err)
	due, err = store.OperationDue(t.Context(), b.db)
	require.NoError(t, err)
	require.Less(t, due.In, 30*time.Second, "it was late by 90 of the hundred seconds")
	for range 10 {
		_, err = b.db.Exec(t.Context(), "UPDATE tenure.operation SET next_at = clock_timestamp()")
		require.NoError(t, err)
		_, err = store.StepOperation(t.Context(), b.db, store.Stepper{Most: 500, Text: 100})
		require.NoError(t, err)
	}
	require.Equal(t, []any{"done", int64(5), int64(1)}, []any{get().State, get().Done, get().KeyTaken})
}

// Jobs of all states are cancelled, those that are chosen, each counted once, also one that is still running when the
// operation comes by it again; what was made since stays, and so does what is between two pools.
func TestStepsCancelJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	claimed, waiting := b.enqueue(t, store.NewJob{}), b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	_, err := store.InsertClaims(t.Context(), b.db, b.fence, onlyJob(p.Removals, claimed, b.first()))
	require.NoError(t, err)
	scheduled, suspended := b.enqueue(t, store.NewJob{DueIn: time.Hour}), b.enqueue(t, store.NewJob{})
	b.suspend(t, time.Time{}, suspended)
	external := b.enqueue(t, store.NewJob{External: true})
	dead, other := b.deadLetter(t, ""), b.enqueue(t, store.NewJob{Kind: "other"})
	between := b.enqueue(t, store.NewJob{Tenant: "gone"})
	_, err = b.db.Exec(t.Context(), "INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('gone', 'moved', 'p9')")
	require.NoError(t, err)

	id := uuid.New()
	require.NoError(t, store.AddOperation(t.Context(), b.db, store.Operation{ID: id, Action: store.CancelJobs, Filter: store.DeadFilter{Kind: "k"}, By: "me"}))
	var before int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure.operation WHERE state = 'running'").Scan(&before))
	require.Zero(t, before, "what a program of before takes for its own: it would delete dead letters by it")
	since := b.enqueue(t, store.NewJob{})
	get := func() store.Operation {
		all, err := store.Operations(t.Context(), b.db, id, 1)
		require.NoError(t, err)
		return all[0]
	}
	require.Equal(t, "running", get().State)
	for steps := 0; get().State == "running"; steps++ {
		require.Less(t, steps, 30)
		lanes, err := store.StepOperation(t.Context(), b.db, store.Stepper{Most: 1, Keep: true})
		require.NoError(t, err)
		require.Empty(t, lanes)
	}
	o := get()
	require.Equal(t, []any{"done", int64(5), int64(0), int64(1)}, []any{o.State, o.Done, o.KeyTaken, o.Left}, "one is left, between two pools")
	for _, one := range []job.ID{scheduled, suspended, external} {
		require.Equal(t, "cancelled", b.state(t, one))
	}
	for _, one := range []job.ID{claimed, waiting} {
		var asked bool
		require.NoError(t, b.db.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM tenure.cancel_request WHERE job_id = $1)", int64(one)).Scan(&asked))
		require.True(t, asked)
	}
	require.Equal(t, "dead", b.state(t, dead))
	for _, one := range []job.ID{other, between, since} {
		require.Equal(t, "waiting", b.state(t, one))
	}
}

// Each of the filters of jobs to be cancelled chooses, and an operation that is ended does no more.
func TestWhichJobsAreCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	jobs := map[string]store.NewJob{
		"plain": {}, "tenant": {Tenant: "globex"}, "queue": {Queue: "q"}, "correlation": {CorrelationID: "c"}, "scheduled": {DueIn: time.Hour},
		"tag": {Meta: []byte(`{"tenure:tags": ["red"]}`)},
	}
	ids := map[string]job.ID{}
	for name, j := range jobs {
		ids[name] = b.enqueue(t, j)
	}
	for name, o := range map[string]store.Operation{
		"tenant": {Filter: store.DeadFilter{Tenant: "globex"}}, "queue": {Jobs: store.ChosenJobs{Queue: "q"}}, "correlation": {Jobs: store.ChosenJobs{CorrelationID: "c"}},
		"scheduled": {Jobs: store.ChosenJobs{State: "scheduled"}}, "tag": {Jobs: store.ChosenJobs{Tag: "red"}},
	} {
		o.ID, o.Action, o.By = uuid.New(), store.CancelJobs, "me"
		require.NoError(t, store.AddOperation(t.Context(), b.db, o))
		for some := true; some; {
			_, err := store.StepOperation(t.Context(), b.db, store.Stepper{Most: 500, Keep: true})
			require.NoError(t, err)
			due, err := store.OperationDue(t.Context(), b.db)
			require.NoError(t, err)
			some = due.Some
		}
		all, err := store.Operations(t.Context(), b.db, o.ID, 1)
		require.NoError(t, err)
		require.EqualValues(t, 1, all[0].Done, name)
		require.Equal(t, []any{o.Filter.Tenant, o.Jobs}, []any{all[0].Filter.Tenant, all[0].Jobs})
	}
	require.Equal(t, "waiting", b.state(t, ids["plain"]))

	id := uuid.New()
	require.NoError(t, store.AddOperation(t.Context(), b.db, store.Operation{ID: id, Action: store.CancelJobs, By: "me"}))
	running, err := store.CancelOperation(t.Context(), b.db, id)
	require.NoError(t, err)
	require.True(t, running)
	_, err = store.StepOperation(t.Context(), b.db, store.Stepper{Most: 500, Keep: true})
	require.NoError(t, err)
	var asked int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure.cancel_request WHERE job_id = $1", int64(ids["plain"])).Scan(&asked))
	require.Zero(t, asked)
}
