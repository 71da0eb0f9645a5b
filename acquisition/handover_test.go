package acquisition

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func offerTo(member string, soon bool) string {
	return fmt.Sprintf("%d to %s: %s", MessageOffer, member, About{Pool: "main", Soon: soon}.Encode())
}

func answerTo(member string, no bool) string {
	return fmt.Sprintf("%d to %s: %s", MessageAnswer, member, About{Pool: "main", No: no}.Encode())
}

// leavingTerm is one that holds a lock of an acquirer, more than its share, for so long
// that it may be moved.
func leavingTerm(t *testing.T, e *fakeElector) (tm *term, stop context.CancelFunc) {
	a := newIdleAcquirer(e)
	a.balance.took()
	tm = &term{aside: &aside{}, acquirer: a, session: newSession(a.keeper), began: time.Now().Add(-rebalanceAfter), quiet: time.Now(), lanes: newLanes(), flight: newFlight()}
	tm.stop, stop = context.WithCancel(t.Context())
	t.Cleanup(stop)
	return tm, stop
}

func TestShouldMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeElector{stable: rebalanceAfter}
		tm, _ := leavingTerm(t, e)
		elected := func(who string) bool {
			e.elected = who
			return tm.shouldMove()
		}
		require.False(t, elected(""))
		require.False(t, elected("me"))
		require.True(t, elected("other"))
		require.False(t, elected("other"), "one at a time")
		time.Sleep(balanceEvery)
		e.stable--
		require.False(t, elected("other"), "the members have not agreed for long")
		e.stable++
		tm.refusals.note([]string{"other"})
		require.False(t, elected("other"), "it cannot take the lock")
		time.Sleep(refusedFor + 1)
		require.True(t, elected("other"), "that was long ago")
		tm.from, tm.began = "other", time.Now().Add(-rebalanceAfter)
		require.False(t, elected("other"), "the lock was taken from it")
		time.Sleep(shunFor)
		require.True(t, elected("other"), "it has lived since")
		tm.balance.lost()
		time.Sleep(balanceEvery)
		require.False(t, elected("other"), "it holds no more than its share")
	})
}

// A holder that stops goes on until the next one is prepared.
func TestDepartWaitsForTheHeir(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeElector{heir: "b-1"}
		tm, stop := leavingTerm(t, e)
		require.NoError(t, tm.depart())
		stop()
		require.NoError(t, tm.depart())
		require.Equal(t, []string{offerTo("b-1", true)}, e.messages())
		tm.answered(mail{ready: []string{"c-1"}})
		require.NoError(t, tm.depart(), "that was somebody else")
		require.Equal(t, time.Now().Add(handoverWithin), tm.leaving.until)
		tm.answered(mail{ready: []string{"b-1"}})
		require.ErrorIs(t, tm.depart(), context.Canceled)
		require.Len(t, e.messages(), 1)
	})
}

func TestDepartWaitsNoLongerThanItMay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm, stop := leavingTerm(t, &fakeElector{heir: "b-1"})
		stop()
		require.NoError(t, tm.depart())
		time.Sleep(handoverWithin - time.Nanosecond)
		require.NoError(t, tm.depart())
		time.Sleep(time.Nanosecond)
		require.ErrorIs(t, tm.depart(), context.Canceled, "it never answered")

		tm, stop = leavingTerm(t, &fakeElector{})
		stop()
		require.ErrorIs(t, tm.depart(), context.Canceled, "there is nobody to wait for")

		tm, stop = leavingTerm(t, &fakeElector{heir: "b-1", sendErr: context.DeadlineExceeded})
		stop()
		require.ErrorIs(t, tm.depart(), context.Canceled, "it cannot be told")
	})
}

// Whoever cannot take the lock is not waited for, and is not offered it.
func TestDepartHeedsRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeElector{heir: "b-1"}
		tm, stop := leavingTerm(t, e)
		stop()
		require.NoError(t, tm.depart())
		tm.answered(mail{refused: []string{"b-1"}})
		require.ErrorIs(t, tm.depart(), context.Canceled)
		require.Empty(t, tm.heir(context.Canceled))
		time.Sleep(refusedForStop + time.Nanosecond)
		require.Equal(t, "b-1", tm.heir(context.Canceled), "it may be able to by now")
		require.Empty(t, tm.heir(errMoved), "but nothing is moved to a better place that may be none")
		tm.answered(mail{ready: []string{"b-1"}})
		require.Equal(t, "b-1", tm.heir(errMoved), "it has said so")
	})
}

// Nobody keeps the lock from a member by an answer in its name to what it was not asked.
func TestOnlyWhoWasOfferedTheLockRefusesIt(t *testing.T) {
	t.Parallel()
	tm, _ := leavingTerm(t, &fakeElector{heir: "b-1", elected: "b-1"})
	tm.answered(mail{refused: []string{"b-1", "c-1"}})
	require.Empty(t, tm.refusals)
	tm.announce(errMoved)
	tm.answered(mail{refused: []string{"c-1", "b-1"}})
	require.True(t, tm.refusals.within(refusedFor, "b-1"))
	require.Len(t, tm.refusals, 1)
}

// A lock is moved to a better place only when that has said that it takes it.
func TestDepartStaysUnlessTheElectedIsPrepared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeElector{heir: "b-1", elected: "b-1", stable: rebalanceAfter}
		tm, stop := leavingTerm(t, e)
		move := func() error {
			require.NoError(t, tm.heedElection(t.Context()))
			return tm.depart()
		}
		require.NoError(t, move())
		require.NotNil(t, tm.leaving)
		time.Sleep(handoverWithin)
		require.NoError(t, move(), "it did not answer")
		require.NoError(t, move())
		require.Nil(t, tm.leaving, "not again so soon")
		time.Sleep(rebalanceAfter)
		require.NoError(t, move())
		require.Len(t, e.messages(), 2)
		tm.answered(mail{ready: []string{"b-1"}})
		require.ErrorIs(t, move(), errMoved)

		tm.leaving = nil
		time.Sleep(balanceEvery)
		require.NoError(t, move())
		e.heir = "c-1"
		tm.answered(mail{refused: []string{"b-1"}})
		require.NoError(t, move())
		require.Nil(t, tm.leaving, "it is not moved to the second best")
		time.Sleep(rebalanceAfter)
		require.NoError(t, move())
		require.Nil(t, tm.leaving, "it cannot take the lock")

		e.elected, e.heir = "c-1", "c-1"
		require.NoError(t, move())
		require.NotNil(t, tm.leaving)
		stop()
		require.NoError(t, tm.depart())
		time.Sleep(handoverWithin)
		require.ErrorIs(t, tm.depart(), context.Canceled, "a stop does not wait for a better place")
	})
}

// Whoever is elected and answers too late is prepared from then on: a machine that has just
// started a node is slow, and so is everything that opens the first connections.
func TestALateAnswerCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeElector{heir: "b-1", elected: "b-1", stable: rebalanceAfter}
		tm, _ := leavingTerm(t, e)
		move := func() error {
			require.NoError(t, tm.heedElection(t.Context()))
			return tm.depart()
		}
		require.NoError(t, move())
		time.Sleep(handoverWithin)
		require.NoError(t, move(), "it did not answer in time")
		time.Sleep(balanceEvery)
		tm.answered(mail{ready: []string{"c-1"}})
		require.NoError(t, move())
		require.Nil(t, tm.leaving, "that was somebody else")
		tm.answered(mail{ready: []string{"b-1"}})
		e.stable = 0
		require.NoError(t, move())
		require.Nil(t, tm.leaving, "the members no longer agree")
		e.stable = rebalanceAfter
		require.NoError(t, move())
		require.NotNil(t, tm.leaving)
		tm.answered(mail{ready: []string{"b-1"}})
		require.ErrorIs(t, move(), errMoved)
	})
}

// A term that is about to end goes on claiming, and its lock goes to whom it has told.
func TestATermGoesOnUntilTheHeirIsPrepared(t *testing.T) {
	t.Parallel()
	for range 10 {
		if goesOnUntilTheHeirIsPrepared(t) {
			return
		}
	}
	require.Fail(t, "no job was claimed while the next holder prepared")
}

// goesOnUntilTheHeirIsPrepared tells whether it does. A machine that is busy enough may take
// longer for a claim than the next holder is given.
func goesOnUntilTheHeirIsPrepared(t *testing.T) bool {
	ran := make(chan job.ID, 100)
	b := setup(t, nil, tells(ran)).start()
	e := &fakeElector{heir: "b-1"}
	a := b.acquirer(e)
	tm := tried(t.Context(), a)
	require.NotNil(t, tm)
	stop, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tm.run(stop) }()
	b.enqueue("tell")
	a.hint(Hint{Pool: "main"})
	within(t, ran)
	cancel()
	b.until(func() bool { return len(e.messages()) == 1 }, "told")
	b.enqueue("tell")
	a.hint(Hint{Pool: "main"})
	var err error
	select {
	case <-ran:
		a.keeper.inbox.answer("b-1", false)
		err = within(t, ended)
	case err = <-ended:
	}
	require.ErrorIs(t, err, context.Canceled)
	a.end(tm, context.Canceled)
	require.Equal(t, "b-1", b.readLock().Next)
	require.Equal(t, []string{offerTo("b-1", true), offerTo("b-1", false)}, e.messages())
	return tm.leaving.ready
}

// Whoever is told that it will be offered a lock opens what it will need, and says so.
func TestPrepare(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	e := &fakeElector{}
	a := b.acquirer(e)
	ctx, cancel := context.WithCancel(t.Context())
	paused := make(chan struct{})
	go func() {
		defer close(paused)
		a.pause(ctx, rest{d: time.Minute, saw: a.outlook()})
	}()
	a.keeper.inbox.prepare("b-1", 2)
	b.until(func() bool { return len(e.messages()) == 1 }, "answered")
	require.Equal(t, []string{answerTo("b-1", false)}, e.messages())
	require.NotNil(t, a.keeper.opened())
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.node_session WHERE state = 'live'"))
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure jobs' AND datname = current_database()"))
	b.until(func() bool { // there may not be the time for all at once
		a.keeper.inbox.prepare("b-1", 2)
		return b.pool.Tenants().Stat().TotalConns() >= 2
	}, "as many connections as the holder needs")
	a.keeper.inbox.prepare("b-1", 2)
	told := len(e.messages())
	b.until(func() bool { return len(e.messages()) > told }, "answered again")
	require.EqualValues(t, 2, b.pool.Tenants().Stat().TotalConns(), "and no more")
	require.Empty(t, b.readLock().Holder, "it is not taken yet")
	cancel()
	within(t, paused)
}

func TestPrepareInVain(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	e := &fakeElector{}
	a := b.acquirer(e)
	b.proxy.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
	a.prepare(t.Context(), "b-1", 3)
	require.Empty(t, e.messages(), "it must not be waited for, but neither is it known to be unable")

	require.True(t, a.serves())
	e.out = true
	require.False(t, a.serves())
	e.out = false
	for range downAfter {
		a.keeper.reach.note(false, time.Now(), time.Hour)
	}
	require.False(t, a.serves())
}

// Nothing that a connection is readied with leaves a trace.
func TestWarmChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	b.enqueue("k")
	before := b.readLock()
	require.NoError(t, store.Warm(t.Context(), b.db))
	tenants, err := b.pool.Tenants().Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.WarmTx(t.Context(), tenants))
	var path string
	require.NoError(t, tenants.QueryRow(t.Context(), "SHOW search_path").Scan(&path))
	require.NotContains(t, path, "tenure")
	tenants.Release()
	after := b.readLock()
	before.Quiet, after.Quiet = 0, 0
	require.Equal(t, before, after)
	require.Zero(t, b.count("SELECT count(*) FROM tenure.claim"))
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.job"))
}
