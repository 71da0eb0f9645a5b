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
	a.node.balance.count(1)
	tm = idleTerm(a)
	tm.lock.began, tm.idleness.quiet = time.Now().Add(-calmAfter), time.Now()
	tm.stopping, stop = context.WithCancel(t.Context())
	t.Cleanup(stop)
	return tm, stop
}

func TestShouldMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeElector{stable: calmAfter}
		tm, _ := leavingTerm(t, e)
		elected := func(who string) bool {
			e.elected = who
			return tm.handover.shouldMove()
		}
		require.False(t, elected(""))
		require.False(t, elected("me"))
		require.True(t, elected("other"))
		require.False(t, elected("other"), "one at a time")
		time.Sleep(tendEvery)
		e.stable--
		require.False(t, elected("other"), "the members have not agreed for long")
		e.stable++
		tm.handover.offers.to = "other"
		tm.handover.offers.noteRefusals([]string{"other"})
		require.False(t, elected("other"), "it cannot take the lock")
		time.Sleep(refusedFor + 1)
		require.True(t, elected("other"), "that was long ago")
		tm.lock.from, tm.lock.began = "other", time.Now().Add(-calmAfter)
		require.False(t, elected("other"), "the lock was taken from it")
		time.Sleep(sweepEvery)
		require.True(t, elected("other"), "it has lived since")
		tm.handover.balance.count(-1)
		time.Sleep(tendEvery)
		require.False(t, elected("other"), "it holds no more than its share")
	})
}

// A holder that stops goes on until the next one is prepared.
func TestDepartWaitsForTheSuccessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeElector{successor: "b-1"}
		tm, stop := leavingTerm(t, e)
		require.NoError(t, tm.checkEnd())
		stop()
		require.NoError(t, tm.checkEnd())
		require.Equal(t, []string{offerTo("b-1", true)}, e.messages())
		tm.handover.noteAnswers([]string{"c-1"}, nil)
		require.NoError(t, tm.checkEnd(), "that was somebody else")
		require.Equal(t, time.Now().Add(rankDelay), tm.handover.departing.until)
		tm.handover.noteAnswers([]string{"b-1"}, nil)
		require.ErrorIs(t, tm.checkEnd(), context.Canceled)
		require.Len(t, e.messages(), 1)
	})
}

func TestDepartWaitsNoLongerThanItMay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm, stop := leavingTerm(t, &fakeElector{successor: "b-1"})
		stop()
		require.NoError(t, tm.checkEnd())
		time.Sleep(rankDelay - time.Nanosecond)
		require.NoError(t, tm.checkEnd())
		time.Sleep(time.Nanosecond)
		require.ErrorIs(t, tm.checkEnd(), context.Canceled, "it never answered")

		tm, stop = leavingTerm(t, &fakeElector{})
		stop()
		require.ErrorIs(t, tm.checkEnd(), context.Canceled, "there is nobody to wait for")

		tm, stop = leavingTerm(t, &fakeElector{successor: "b-1", sendErr: context.DeadlineExceeded})
		stop()
		require.ErrorIs(t, tm.checkEnd(), context.Canceled, "it cannot be told")
	})
}

// Anyone who cannot take the lock is not waited for, and is not offered it.
func TestDepartHeedsRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeElector{successor: "b-1"}
		tm, stop := leavingTerm(t, e)
		stop()
		require.NoError(t, tm.checkEnd())
		tm.handover.noteAnswers(nil, []string{"b-1"})
		require.ErrorIs(t, tm.checkEnd(), context.Canceled)
		require.Empty(t, tm.handover.findSuccessor(context.Canceled))
		time.Sleep(peerPatience + time.Nanosecond)
		require.Equal(t, "b-1", tm.handover.findSuccessor(context.Canceled), "it may be able to by now")
		require.Empty(t, tm.handover.findSuccessor(errMoved), "but nothing is moved to a better place that may be none")
		tm.handover.noteAnswers([]string{"b-1"}, nil)
		require.Equal(t, "b-1", tm.handover.findSuccessor(errMoved), "it has said so")
	})
}

// Nobody keeps the lock from a member by an answer in its name to what it was not asked.
func TestOnlyWhoWasOfferedTheLockRefusesIt(t *testing.T) {
	t.Parallel()
	tm, _ := leavingTerm(t, &fakeElector{successor: "b-1", elected: "b-1"})
	tm.handover.noteAnswers(nil, []string{"b-1", "c-1"})
	require.Empty(t, tm.handover.offers.refused)
	tm.handover.announce(errMoved)
	tm.handover.noteAnswers(nil, []string{"c-1", "b-1"})
	require.True(t, tm.handover.offers.refusedWithin(refusedFor, "b-1"))
	require.Len(t, tm.handover.offers.refused, 1)
}

// A lock is moved to a better place only when that has said that it takes it.
func TestDepartStaysUnlessTheElectedIsPrepared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeElector{successor: "b-1", elected: "b-1", stable: calmAfter}
		tm, stop := leavingTerm(t, e)
		move := func() error {
			require.NoError(t, tm.handover.checkElection(t.Context()))
			return tm.checkEnd()
		}
		require.NoError(t, move())
		require.NotNil(t, tm.handover.departing)
		time.Sleep(rankDelay)
		require.NoError(t, move(), "it did not answer")
		require.NoError(t, move())
		require.Nil(t, tm.handover.departing, "not again so soon")
		time.Sleep(calmAfter)
		require.NoError(t, move())
		require.Len(t, e.messages(), 2)
		tm.handover.noteAnswers([]string{"b-1"}, nil)
		require.ErrorIs(t, move(), errMoved)

		tm.handover.departing = nil
		time.Sleep(tendEvery)
		require.NoError(t, move())
		e.successor = "c-1"
		tm.handover.noteAnswers(nil, []string{"b-1"})
		require.NoError(t, move())
		require.Nil(t, tm.handover.departing, "it is not moved to the second best")
		time.Sleep(calmAfter)
		require.NoError(t, move())
		require.Nil(t, tm.handover.departing, "it cannot take the lock")

		e.elected, e.successor = "c-1", "c-1"
		require.NoError(t, move())
		require.NotNil(t, tm.handover.departing)
		stop()
		require.NoError(t, tm.checkEnd())
		time.Sleep(rankDelay)
		require.ErrorIs(t, tm.checkEnd(), context.Canceled, "a stop does not wait for a better place")
	})
}

// Anyone who is elected and answers too late is prepared from then on: a machine that has just
// started a node is slow, and so is everything that opens the first connections.
func TestALateAnswerCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeElector{successor: "b-1", elected: "b-1", stable: calmAfter}
		tm, _ := leavingTerm(t, e)
		move := func() error {
			require.NoError(t, tm.handover.checkElection(t.Context()))
			return tm.checkEnd()
		}
		require.NoError(t, move())
		time.Sleep(rankDelay)
		require.NoError(t, move(), "it did not answer in time")
		time.Sleep(tendEvery)
		tm.handover.noteAnswers([]string{"c-1"}, nil)
		require.NoError(t, move())
		require.Nil(t, tm.handover.departing, "that was somebody else")
		tm.handover.noteAnswers([]string{"b-1"}, nil)
		e.stable = 0
		require.NoError(t, move())
		require.Nil(t, tm.handover.departing, "the members no longer agree")
		e.stable = calmAfter
		require.NoError(t, move())
		require.NotNil(t, tm.handover.departing)
		tm.handover.noteAnswers([]string{"b-1"}, nil)
		require.ErrorIs(t, move(), errMoved)
	})
}

// A term that is about to end goes on claiming, and its lock goes to whom it has told.
func TestATermGoesOnUntilTheSuccessorIsPrepared(t *testing.T) {
	t.Parallel()
	for range 10 {
		if goesOnUntilTheSuccessorIsPrepared(t) {
			return
		}
	}
	require.Fail(t, "no job was claimed while the next holder prepared")
}

// goesOnUntilTheSuccessorIsPrepared tells whether it does. A machine that is busy enough may take
// longer for a claim than the next holder is given.
func goesOnUntilTheSuccessorIsPrepared(t *testing.T) bool {
	ran := make(chan job.ID, 100)
	b := setup(t, nil, tells(ran)).start()
	e := &fakeElector{successor: "b-1"}
	a := b.acquirer(e)
	tm := tried(t.Context(), a)
	require.NotNil(t, tm)
	stop, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tm.lead(stop) }()
	b.enqueue("tell")
	a.takeHint(Hint{Pool: "main"})
	within(t, ran)
	cancel()
	b.until(func() bool { return len(e.messages()) == 1 }, "told")
	b.enqueue("tell")
	a.takeHint(Hint{Pool: "main"})
	var err error
	select {
	case <-ran:
		a.inbox.addAnswer("b-1", false)
		err = within(t, ended)
	case err = <-ended:
	}
	require.ErrorIs(t, err, context.Canceled)
	a.endTerm(tm, context.Canceled)
	require.Equal(t, "b-1", b.readLock().Next)
	require.Equal(t, []string{offerTo("b-1", true), offerTo("b-1", false)}, e.messages())
	return tm.handover.departing.ready
}

// Anyone who is told that it will be offered a lock opens what it will need, and says so.
func TestPrepare(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	e := &fakeElector{}
	a := b.acquirer(e)
	ctx, cancel := context.WithCancel(t.Context())
	paused := make(chan struct{})
	go func() {
		defer close(paused)
		a.awaitChange(ctx, pause{d: time.Minute, view: a.currentView()})
	}()
	a.inbox.noteAnnouncement("b-1", 2)
	b.until(func() bool { return len(e.messages()) == 1 }, "answered")
	require.Equal(t, []string{answerTo("b-1", false)}, e.messages())
	require.NotNil(t, a.keeper.Current())
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.node_session WHERE state = 'live'"))
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure jobs' AND datname = current_database()"))
	b.until(func() bool { // there may not be the time for all at once
		a.inbox.noteAnnouncement("b-1", 2)
		return b.pool.Tenants().Stat().TotalConns() >= 2
	}, "as many connections as the holder needs")
	a.inbox.noteAnnouncement("b-1", 2)
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
	a.prepareToLead(t.Context(), "b-1", 3)
	require.Empty(t, e.messages(), "it must not be waited for, but neither is it known to be unable")

	require.True(t, a.canServe())
	e.out = true
	require.False(t, a.canServe())
	e.out = false
	for range 3 {
		a.pool.Breaker.Note(errCut, time.Now())
	}
	require.False(t, a.canServe())
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
