package lease

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// fakeReports is a ledger that takes ends and reports; on synctest's clock.
type fakeReports struct {
	fakeLedger
	session *Session

	mu      sync.Mutex
	away    bool             // guarded by mu; no report can be written
	locked  bool             // guarded by mu; somebody has locked the reports themselves
	held    []job.ID         // guarded by mu; somebody has locked their rows
	reports []reportCall     // guarded by mu; those that were written
	said    []store.Reported // guarded by mu; what they were
}

type reportCall struct {
	at  time.Time
	ids []job.ID
}

// runReporting runs the completer of a session on a fake ledger; end ends it and waits for it.
func runReporting() (f *fakeReports, end func()) {
	f = &fakeReports{}
	f.session = newFakeSession(f)
	f.session.completer.start()
	return f, f.session.completer.end
}

func (f *fakeReports) report(_ context.Context, all []store.Reported) error {
	c := reportCall{at: time.Now()}
	for _, r := range all {
		c.ids = append(c.ids, r.Record.ID)
	}
	slices.Sort(c.ids)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.away:
		return errWrite
	case f.locked:
		return fmt.Errorf("write: %w", store.ErrLocked)
	case slices.ContainsFunc(c.ids, func(id job.ID) bool { return slices.Contains(f.held, id) }):
		return fmt.Errorf("write: %w", store.ErrLocked)
	}
	f.reports = append(f.reports, c)
	f.said = append(f.said, all...)
	return nil
}

func (f *fakeReports) findHeld(_ context.Context, runs []store.Finished, _ []int64) (store.Held, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := store.Held{Jobs: map[job.ID]bool{}}
	for _, r := range runs {
		if slices.Contains(f.held, r.Record.ID) {
			held.Jobs[r.Record.ID] = true
		}
	}
	return held, nil
}

// fail has reports not be written any more, or of these jobs.
func (f *fakeReports) fail(away bool, held ...job.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away, f.held = away, held
}

// written is when the reports of some runs were written.
func (f *fakeReports) written() []reportCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.reports)
}

// talker is a run that says something when it is told to.
type talker struct {
	claim *execution.ClaimedJob
	ctx   context.Context
}

func (f *fakeReports) talker(id job.ID) *talker {
	claim := claimOf(1, id)
	claim.Owner = f.session
	t := &talker{claim: claim}
	t.ctx = job.NewContext(context.WithValue(context.Background(), job.ReportersKey{}, t), &claim.Record)
	f.session.completer.openClaim(1, 1)
	return t
}

func (t *talker) Reporter(job.ID) *job.Reporter { return t.claim.OpenReport() }

func (t *talker) say() { job.Log(t.ctx, "a line") }

func TestReportsAreWrittenTogetherAndSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, end := runReporting()
		defer end()
		began := time.Now()
		one, other := f.talker(1), f.talker(2)
		for i := range 295 { // every 10 ms
			one.say()
			if i%100 == 50 {
				other.say()
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		require.Len(t, f.written(), 3)
		last := began
		for _, c := range f.written() {
			require.Equal(t, []job.ID{1, 2}, c.ids)
			require.GreaterOrEqual(t, c.at.Sub(last), reportEvery)
			last = c.at
		}

		// Runs that end meanwhile, each with a report, do not have another's written more often.
		before := len(f.written())
		for i := range 100 {
			short := f.talker(job.ID(3 + i))
			short.say()
			f.session.Finish(short.claim, job.Outcome{State: job.Returned})
			time.Sleep(10 * time.Millisecond)
		}
		for range 100 {
			one.say()
			time.Sleep(10 * time.Millisecond)
		}
		n := 0
		for _, c := range f.written()[before:] {
			if slices.Contains(c.ids, 1) {
				n++
			}
		}
		require.LessOrEqual(t, n, 2)
	})
}

// A run's last report is written just before its end, and only if there is any.
func TestLastReportsAreWrittenWithTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, end := runReporting()
		defer end()
		began := time.Now()
		one, silent := f.talker(1), f.talker(2)
		one.say()
		f.session.Finish(silent.claim, job.Outcome{State: job.Done})
		f.session.Finish(one.claim, job.Outcome{State: job.Done})
		time.Sleep(time.Hour)
		require.Equal(t, []reportCall{{began.Add(flushEvery), []job.ID{1}}}, f.written())
		require.Len(t, f.all(), 1)
		require.Equal(t, []job.ID{2, 1}, f.all()[0].runs)
		synctest.Wait()
		require.Nil(t, one.claim.Reporter(), "its memory is given back")
	})
}

// Reports that cannot be written are tried again, and keep no end from being written.
func TestEndsDoNotWaitForReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, end := runReporting()
		defer end()
		f.fail(true)
		one, other := f.talker(1), f.talker(2)
		one.say()
		other.say()
		time.Sleep(3 * reportEvery)
		require.Empty(t, f.written())
		f.session.Finish(one.claim, job.Outcome{State: job.Done})
		time.Sleep(flushEvery)
		synctest.Wait()
		require.Len(t, f.all(), 1)
		f.fail(false)
		time.Sleep(2 * reportEvery)
		require.Len(t, f.written(), 1)
		require.Equal(t, []job.ID{2}, f.written()[0].ids)
	})
}

// That somebody has locked a job's row keeps only that job's report back.
func TestReportsOfLockedJobsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, end := runReporting()
		defer end()
		f.fail(false, 2)
		one, other := f.talker(1), f.talker(2)
		one.say()
		other.say()
		time.Sleep(reportEvery + time.Millisecond)
		require.Len(t, f.written(), 1)
		require.Equal(t, []job.ID{1}, f.written()[0].ids)
		time.Sleep(2 * reportEvery)
		require.Len(t, f.written(), 1)
		f.fail(false)
		time.Sleep(reportEvery)
		require.Len(t, f.written(), 2)
		require.Equal(t, []job.ID{2}, f.written()[1].ids)
	})
}

// Somebody who locks the reports themselves keeps no end from being written, nor at a stop.
func TestEndsDoNotWaitForLockedReports(t *testing.T) {
	t.Parallel()
	for _, stops := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, end := runReporting()
			defer end()
			f.mu.Lock()
			f.locked = true
			f.mu.Unlock()
			one := f.talker(1)
			one.say()
			f.session.Finish(one.claim, job.Outcome{State: job.Done})
			if stops {
				end()
			} else {
				time.Sleep(flushEvery)
				synctest.Wait()
			}
			require.Len(t, f.all(), 1)
			require.Equal(t, []job.ID{1}, f.all()[0].runs)
			require.Empty(t, f.written())
		})
	}
}

// sayMuch has it say as much as it may.
func (t *talker) sayMuch() {
	for range job.MaxLogLines {
		job.Log(t.ctx, strings.Repeat("x", job.MaxLogLine))
	}
	if err := job.SetOutput(t.ctx, strings.Repeat("y", job.MaxOutput-2)); err != nil {
		panic(err)
	}
}

// However much runs that end together have said, their ends do not wait for long: lines are left out
// first.
func TestEndsDoNotWaitForMuchThatWasSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, end := runReporting()
		defer end()
		const jobs = flushSize
		for id := range job.ID(jobs) {
			one := f.talker(id + 1)
			one.sayMuch()
			f.session.Finish(one.claim, job.Outcome{State: job.Done})
		}
		time.Sleep(flushEvery)
		synctest.Wait()
		require.Len(t, f.all(), 1)
		require.Len(t, f.all()[0].runs, jobs)
		require.Len(t, f.written(), 1)
		whole, bytes := 0, 0
		for _, r := range f.said {
			bytes += r.Size()
			if len(r.Lines) > 0 {
				whole += r.Size()
				require.Zero(t, r.LeftOut)
			} else {
				require.Equal(t, job.MaxLogLines, r.LeftOut)
			}
			require.Len(t, r.Output, job.MaxOutput)
		}
		require.LessOrEqual(t, whole, reportBudget)
		require.Greater(t, whole, reportBudget/2)
		require.LessOrEqual(t, bytes, lastBudget)
		require.Greater(t, bytes, lastBudget/2)
	})
}

// Reports of runs that go on are written in turns, so that ends come in between.
func TestMuchThatRunsSayIsWrittenInParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, end := runReporting()
		defer end()
		for id := range job.ID(100) {
			f.talker(id + 1).sayMuch()
		}
		time.Sleep(10 * reportEvery)
		synctest.Wait()
		require.Len(t, f.written(), 2)
		var ids []job.ID
		for _, c := range f.written() {
			ids = append(ids, c.ids...)
		}
		slices.Sort(ids)
		require.Len(t, slices.Compact(ids), 100)
	})
}

// What waits in memory with ends that cannot be written is bounded.
func TestWhatWaitsWithEndsIsBounded(t *testing.T) {
	t.Parallel()
	f := &fakeReports{}
	f.session = newFakeSession(f)
	c := f.session.completer
	said := f.talker(1)
	said.sayMuch()
	most := takeReport(said.claim)
	fits := keepMost / most.Size()
	for id := range fits + 100 {
		one := f.talker(job.ID(id + 2))
		one.sayMuch()
		c.addEnded(Ended{Claim: one.claim})
	}
	whole := 0
	for _, e := range c.waiting {
		if r := takeReport(e.Claim); len(r.Lines) > 0 {
			whole++
		} else {
			require.Equal(t, job.MaxLogLines, r.LeftOut)
		}
	}
	require.Equal(t, fits, whole)
	c.flushAll(t.Context())
	require.Zero(t, c.kept)
}
