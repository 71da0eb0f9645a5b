package lease

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/store"
)

// What runs say of themselves is written by the completer, too: while they run at most so often,
// together, and with their end, just before that. Ends wait for it, so it is bounded.
const (
	reportEvery = time.Second

	// reportBudget is about how many bytes are written at a time of what runs say: of those that go on,
	// others' reports wait for the next time; of those that have ended, others' lines are left out, and
	// beyond lastBudget the whole report.
	reportBudget = 4 << 20
	lastBudget   = 4 * reportBudget

	// reportTimeout bounds a try to write reports.
	reportTimeout = lastWrite

	// keepMost is about how many bytes of reports wait in memory with their runs' ends. Beyond, lines
	// are left out.
	keepMost = 64 << 20
)

// addReport has what a claim's run says written soon.
func (c *completer) addReport(claim *execution.ClaimedJob) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reportsTimed {
		c.reportsTimed = true
		time.AfterFunc(reportEvery, func() { wake(c.reportsDue) })
	}
	if c.reporting == nil {
		c.reporting = map[*execution.ClaimedJob]bool{}
	}
	c.reporting[claim] = true
}

// flushReports writes the news of runs that go on, as much as fits. What cannot be written now is
// tried again.
func (c *completer) flushReports(ctx context.Context) {
	c.mu.Lock()
	claims := slices.Collect(maps.Keys(c.reporting))
	clear(c.reporting)
	c.reportsTimed = false
	c.mu.Unlock()
	claims = slices.DeleteFunc(claims, func(one *execution.ClaimedJob) bool { return one.Reporter() == nil }) // it has ended
	var reports []store.Reported
	for bytes := 0; bytes < reportBudget && len(reports) < len(claims); {
		r := takeReport(claims[len(reports)])
		bytes += r.Size()
		reports = append(reports, r)
	}
	claims, rest := claims[:len(reports)], claims[len(reports):]
	err := c.writeReports(ctx, reports)
	if errors.Is(err, store.ErrLocked) {
		runs := make([]store.Finished, len(claims))
		for i, one := range claims {
			runs[i] = store.Finished{Record: &one.Record}
		}
		held := c.listHeld(ctx, runs, nil)
		free := slices.DeleteFunc(reports, func(r store.Reported) bool { return held.Jobs[r.Record.ID] })
		if err = c.writeReports(ctx, free); err == nil {
			claims = slices.DeleteFunc(slices.Clone(claims), func(one *execution.ClaimedJob) bool { return !held.Jobs[one.Record.ID] })
		}
	} else if err == nil {
		claims = nil
	}
	if err == nil {
		c.unreported = 0
	} else if c.unreported++; isNews(c.unreported) {
		c.log.Warn("what runs say could not be written; trying again", zap.Int("runs", len(claims)), zap.Error(err))
	}
	for _, one := range slices.Concat(claims, rest) {
		c.addReport(one)
	}
}

// takeReport is what the run of a claim, which has a reporter, has said so far.
func takeReport(claim *execution.ClaimedJob) store.Reported {
	said, _ := claim.Reporter().Take()
	return store.Reported{Record: &claim.Record, Age: claim.Age(), Report: said}
}

func (c *completer) writeReports(ctx context.Context, reports []store.Reported) error {
	if len(reports) == 0 {
		return nil
	}
	_, err := tryWrite(ctx, func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, reportTimeout)
		defer cancel()
		return struct{}{}, c.ledger.report(ctx, reports)
	})
	return err
}

// writeLastReports writes what runs said that have ended; false: it could not. Their ends are to be
// written all the same, but for what is held: somebody has locked what they need, too.
func (c *completer) writeLastReports(ctx context.Context, b *batch) (written bool, held store.Held) {
	var reports []store.Reported
	bytes, cut := 0, 0
	for i := range b.ends {
		e := &b.ends[i]
		if e.How != Ran || e.Claim.Reporter() == nil {
			continue
		}
		r := takeReport(e.Claim)
		if bytes+r.Size() > reportBudget {
			r.LeftOut, r.Lines = r.LeftOut+len(r.Lines), nil
			cut++
		}
		if bytes += r.Size(); bytes > lastBudget {
			break
		}
		reports = append(reports, r)
	}
	if cut > 0 {
		c.log.Warn("ended runs have said too much to be written at once; some of it is left out, first of all what they have logged", zap.Int("runs", len(b.runs)), zap.Int("written", len(reports)), zap.Int("without lines", cut))
	}
	err := c.writeReports(ctx, reports)
	if errors.Is(err, store.ErrLocked) {
		if held = c.listBlocking(ctx, b, err); !held.None() {
			return false, held
		}
	}
	if err != nil && isNews(b.tries) {
		c.log.Warn("what runs said last could not be written", zap.Int("runs", len(reports)), zap.Error(err))
	}
	return err == nil, held
}

// keepReport notes what the run of an end has said, until that is written; mu is held.
func (c *completer) keepReport(e *Ended) {
	if e.Claim.Reporter() == nil {
		return
	}
	r := takeReport(e.Claim)
	if e.said = r.Size(); c.kept+e.said > keepMost {
		e.Claim.Reporter().LeaveOutLines()
		r.Lines = nil
		e.said = r.Size()
	}
	c.kept += e.said
}
