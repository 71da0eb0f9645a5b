package acquisition

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
)

// maintenance is what a holder does for its pool's ledger that no claim depends on. All of it
// is done by background queries.
type maintenance struct {
	place
	gates *schedule.Gates

	oldest  oldTransaction
	lastTag store.TagPlace
	sizes   map[time.Time]int64 // of the days' partitions, when their indexes were last brought up to date

	finishedDuty, deadDuty, reportsDuty, leftoversDuty duty
}

// listDuties are those of maintenance.
func (m *maintenance) listDuties(now time.Time) []*duty {
	later := now.Add(sweepEvery)
	m.reportsDuty = duty{name: "old reports to be deleted", every: fixed(10 * sweepEvery), due: firstTidying(now), query: m.reportsDuty.byStep(m.deleteReports)}
	m.finishedDuty = duty{name: "finished jobs to be deleted", every: fixed(10 * sweepEvery), due: firstTidying(now), query: m.finishedDuty.byStep(m.deleteFinished)}
	m.deadDuty = duty{name: "old dead letters to be deleted", every: fixed(10 * sweepEvery), due: firstTidying(now), query: m.deadDuty.byStep(m.deleteDead)}
	m.leftoversDuty = duty{name: "what is left of jobs to be deleted", every: fixed(10 * sweepEvery), due: firstTidying(now), query: m.leftoversDuty.byStep(m.deleteLeftovers)}
	return []*duty{
		{name: "days of finished jobs", every: fixed(10 * sweepEvery), due: now, query: only(m.keepDays)},
		{name: "finished jobs to be indexed", every: fixed(sweepEvery / 4), due: later, query: m.summarizeFinished},
		&m.finishedDuty,
		&m.deadDuty,
		&m.reportsDuty,
		&m.leftoversDuty,
		{name: "old entries of the audit to be deleted", every: fixed(10 * sweepEvery), due: later, query: only(m.trimAudit)},
		{name: "full buckets to be forgotten", every: fixed(sweepEvery), due: later, query: only(m.forgetBuckets)},
		{name: "cancel requests to be deleted", every: fixed(sweepEvery), due: firstSweep(now), query: only(m.deleteRequests)},
		{name: "sequences that have fallen back", every: fixed(sweepEvery), due: firstSweep(now), query: only(m.advanceSequences)},
		{name: "expired locks of external workers", every: fixed(sweepEvery), due: firstSweep(now), query: only(m.sweepExternal)},
		{name: "jobs that wait in vain", every: fixed(sweepEvery), due: later, query: only(m.reportUnhandled)},
		{name: "jobs that wait, to be counted", every: fixed(countEvery), due: firstSweep(now), query: m.countWaiting},
		{name: "old transactions", every: fixed(sweepEvery), due: later, query: m.reportOldTransaction},
	}
}

// keepDays keeps the partitions of finished jobs in order. That it fails is no reason
// not to acquire jobs. What somebody's lock keeps from being done, such as a backup's, is
// tried again as other queries are.
func (m *maintenance) keepDays(ctx context.Context) error {
	if !m.keeper.KeepsFinished() {
		return nil
	}
	deferred, err := store.KeepDays(ctx, m.pool.Jobs(), m.keeper.Kept().Finished)
	if err != nil && !errors.Is(err, context.Canceled) {
		m.log.Warn("partitions of finished jobs could not be kept in order; finished jobs go to the default partition", zap.Error(err))
	}
	return deferred
}

// summarizeFinished brings the indexes of finished jobs up to date. Without it lists would only be slower.
func (m *maintenance) summarizeFinished(ctx context.Context) (use func(), err error) {
	if !m.keeper.KeepsFinished() {
		return nil, nil
	}
	sizes, err := store.SummarizeFinished(ctx, m.pool.Jobs(), m.sizes)
	return func() { m.sizes = sizes }, err
}

// deleteFinished removes finished jobs that have no day's partition to be dropped with, and errors; it goes on as
// deleteReports does.
func (m *maintenance) deleteFinished(ctx context.Context) (more bool, err error) {
	return store.TrimFinished(ctx, m.pool.Jobs(), m.keeper.Kept().Finished, maxSlice)
}

// deleteReports removes what runs said of jobs that are gone. While there is more, it goes on after
// ten times what the last batch took: more jobs may report than one batch in ten minutes can hold.
func (m *maintenance) deleteReports(ctx context.Context) (more bool, err error) {
	n, err := store.TrimReports(ctx, m.pool.Jobs(), m.keeper.Kept().Finished, maxSlice)
	return n == maxSlice, err
}

// deleteDead removes dead letters that are older than they are to be kept; it goes on as deleteReports does.
func (m *maintenance) deleteDead(ctx context.Context) (more bool, err error) {
	kept := m.keeper.Kept().Dead
	if kept == 0 {
		return false, nil
	}
	n, err := store.TrimDead(ctx, m.pool.Jobs(), kept, maxSlice)
	if n > 0 {
		m.log.Info("old dead letters deleted, as execution.dead_retention says", zap.Int("jobs", n), zap.Duration("older_than", kept))
	}
	return n == maxSlice, err
}

// leftoversStep is how many tags are looked at together: each takes a look at five tables.
const leftoversStep = 500

// deleteLeftovers frees unique keys whose periods are over, and removes tags that lead to no job any
// more, a step at a time. While there is more, it goes on after ten times what the last step took.
func (m *maintenance) deleteLeftovers(ctx context.Context) (more bool, err error) {
	freed, err := store.TrimPeriods(ctx, m.pool.Jobs(), maxSlice)
	if err != nil {
		return false, err
	}
	last, err := store.TrimTags(ctx, m.pool.Jobs(), m.lastTag, leftoversStep, m.keeper.Kept().Finished)
	if err == nil {
		m.lastTag = last
	}
	return last != (store.TagPlace{}) || freed == maxSlice, err
}

// auditKept is for how long the ledger knows what operators have done.
const auditKept = 90 * 24 * 60 * sweepEvery

// trimAudit forgets what operators did long ago, at most so much of it at a time.
func (m *maintenance) trimAudit(ctx context.Context) error {
	_, err := store.TrimAudit(ctx, m.pool.Jobs(), auditKept, maxSlice)
	return err
}

// forgetBuckets forgets how full the buckets of rates are that are full.
func (m *maintenance) forgetBuckets(ctx context.Context) error {
	return store.ForgetBuckets(ctx, m.pool.Jobs())
}

// deleteRequests removes what was asked of jobs that had ended before they heard of it.
func (m *maintenance) deleteRequests(ctx context.Context) error {
	return store.ForgetCancelRequests(ctx, m.pool.Jobs())
}

// sweepExternal frees jobs whose external worker has not come back, as far as nobody has
// acquired them since.
func (m *maintenance) sweepExternal(ctx context.Context) (err error) {
	for swept := maxSlice; swept >= maxSlice && err == nil; {
		swept, err = store.SweepExternal(ctx, m.pool.Jobs(), maxSlice)
	}
	return err
}

// advanceSequences sets sequences ahead that are behind what stands in the tables: some rows
// were restored, or this is a logical replica that was switched over to. That is checked at
// the beginning of a term, and once a minute. Finding it ends the term, whose memory is of
// other positions.
func (m *maintenance) advanceSequences(ctx context.Context) error {
	_, mended, err := store.BeginIncarnation(ctx, m.pool.Jobs(), true)
	if mended {
		m.log.Warn("the sequences of the ledger had fallen back behind its jobs and were set ahead; " +
			"was it restored, or replaced by a replica that did not follow its sequences?")
	}
	return err
}

// reportUnhandled says which jobs wait in vain: deployment's mistake number one, and those
// that were added with SQL where a tenant no longer lives.
func (m *maintenance) reportUnhandled(ctx context.Context) error {
	kinds, err := store.Unhandled(ctx, m.pool.Jobs())
	if err != nil {
		return err
	}
	if len(kinds) > 0 {
		names := slices.SortedFunc(maps.Keys(kinds), func(a, b string) int { return cmp.Or(cmp.Compare(kinds[b], kinds[a]), cmp.Compare(a, b)) })
		for _, name := range names[min(len(names), mostKinds):] { // SQL can make up any number
			delete(kinds, name)
		}
		m.log.Warn("jobs wait and no live node has a handler for their kind", zap.Any("kinds", kinds), zap.Int("of", len(names)))
	}
	left, err := store.LeftBehind(ctx, m.pool.Jobs())
	for _, one := range left {
		m.log.Warn("jobs wait in a pool that their tenant has left, or what its jobs await has stayed there; bring it along with `tenure tenants move`", zap.String("tenant", one.Tenant), zap.String("to", one.Other))
	}
	return err
}

// oldTransaction is the oldest one that was seen. A transaction that stays open for long, even
// one that only reads, keeps Postgres from vacuuming the rows that jobs leave behind. Here
// that costs little, as cursors read on behind those rows; elsewhere in the same database it
// may cost much, and other job queues stand still for it. So the operator is told.
type oldTransaction struct {
	id    store.HoldupID
	since time.Time // when it was first seen
	said  time.Time // when it was last told of; zero: not yet
}

// observe takes in which one is the oldest now, and returns for how long it has been open, and
// whether to tell so now. For how long a session of another user's has had its
// transaction is seen only by asking again and again.
func (o *oldTransaction) observe(h store.Holdup, now time.Time) (open time.Duration, say bool) {
	if o.id != h.HoldupID {
		*o = oldTransaction{id: h.HoldupID, since: now}
	}
	open = max(h.Open, now.Sub(o.since))
	if say = open >= longTransaction && (o.said.IsZero() || now.Sub(o.said) >= 6*longTransaction); say {
		o.said = now
	}
	return open, say
}

// reportOldTransaction says what keeps dead rows from being vacuumed.
func (m *maintenance) reportOldTransaction(ctx context.Context) (use func(), err error) {
	o, found, err := store.OldestHoldup(ctx, m.pool.Jobs())
	return func() { m.noteOldest(o, found) }, err
}

func (m *maintenance) noteOldest(o store.Holdup, found bool) {
	var open time.Duration
	if found {
		var say bool
		if open, say = m.oldest.observe(o, time.Now()); say {
			m.log.Warn("a transaction has been open for long; Postgres cannot vacuum behind it, and the whole database gets slower: find out why it is, and "+o.Remedy(),
				zap.String("what", o.What), zap.String("id", o.ID), zap.String("user", o.User), zap.String("application", o.Application),
				zap.String("state", o.State), zap.Duration("for", open.Round(time.Second)))
		}
	}
	m.metrics.oldestTransaction.WithLabelValues(m.pool.Name).Set(open.Seconds())
}

// countWaiting counts what waits, and what is dead, for the metrics.
func (m *maintenance) countWaiting(ctx context.Context) (use func(), err error) {
	counted, err := m.metrics.waiting.count(ctx, m.pool.Jobs())
	return func() {
		counted.limits, counted.shares = m.gates.CountWaitedFor(), m.gates.ListShares()
		m.metrics.waiting.set(m.pool.Name, counted)
	}, err
}
