package promises_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/job"
)

// heldSQL records every state of the acquire lock that was committed. Anyone who changes it waits
// for the one before, so that their order is that of the commits.
const heldSQL = `
CREATE SCHEMA audit;
CREATE TABLE audit.held (n bigint GENERATED ALWAYS AS IDENTITY, session uuid, member text, epoch bigint NOT NULL);
CREATE FUNCTION audit.held() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO audit.held (session, member, epoch) VALUES (NEW.holder, NEW.holder_member, NEW.epoch);
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER UPDATE ON tenure.acquire_lock FOR EACH ROW EXECUTE FUNCTION audit.held();
`

// What must not be in audit.held.
var heldChecks = map[string]string{
	"an epoch of two holders": `
		SELECT count(*) FROM (SELECT FROM audit.held WHERE session IS NOT NULL GROUP BY epoch HAVING count(DISTINCT session) > 1) t`,
	"an epoch after a higher one": `
		SELECT count(*) FROM (SELECT epoch, lag(epoch) OVER (ORDER BY n) AS before FROM audit.held) t WHERE epoch < before`,
}

// The statements of which answers are lost.
func takes(e faultproxy.Event) bool {
	return strings.Contains(e.SQL, "UPDATE tenure.acquire_lock AS l")
}

func renews(e faultproxy.Event) bool {
	return strings.Contains(e.SQL, "renew_seq = renew_seq + 1, renewed_at")
}

// answerBed is a node behind a proxy and a peer, which know of one another, and a pool that
// is fed until ended is called: every job must have run once, and never has the lock had
// two holders.
type answerBed struct {
	*testbed
	a, peer *running
	ended   func()
}

// startWithLostAnswers starts it; rule is in force from the start.
func startWithLostAnswers(b *testbed, rule faultproxy.Rule) (d answerBed, proxy *faultproxy.Proxy) {
	b.exec("p1", heldSQL)
	runs := newRuns()
	count := func(id job.ID) { runs.start(id)() }
	cfg, proxy := b.behind(b.gossiping("a"), "p1")
	proxy.SetRule(rule)
	stop := b.feed(context.WithoutCancel(b.t.Context()), "p1")
	b.t.Cleanup(stop)
	d = answerBed{testbed: b, a: b.start(cfg, b.registry(count))}
	b.eventually(1, "p1", "SELECT least(count(*), 1) FROM audit.held WHERE member = $1", d.a.Self().Name) // before the peer is there to be quicker
	d.peer = b.start(b.gossiping("peer", d.a.Self().Addr), b.registry(count))
	d.ended = func() {
		b.t.Helper()
		stop()
		proxy.SetRule(nil)
		b.eventually(0, "p1", "SELECT (SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.claim)")
		starts, overlaps := runs.sum()
		require.Zero(b.t, overlaps)
		require.Equal(b.t, starts, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE attempt = 1 AND losses = 0"), "every job has run once")
		require.Equal(b.t, starts, b.count("p1", "SELECT count(*) FROM tenure.completed_job"))
		require.Zero(b.t, b.count("p1", "SELECT count(*) FROM tenure.job_error"))
		for what, sql := range heldChecks {
			require.Zero(b.t, b.count("p1", sql), what)
		}
	}
	return d, proxy
}

// terms is how many terms there were, by what was committed.
func (d answerBed) terms() int {
	return d.count("p1", "SELECT count(DISTINCT epoch) FROM audit.held WHERE session IS NOT NULL")
}

// TestP2TheAnswerToATakeIsLost: a node holds the lock and does not know. It takes it again,
// long before it expires, for a new term; nobody else has it meanwhile.
func TestP2TheAnswerToATakeIsLost(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.cfg.Acquire.Lock.TTL, b.cfg.Acquire.Lock.RenewEvery = 2*time.Minute, 20*time.Second // nobody waits for it to end
	b.cfg.Acquire.Session.TTL, b.cfg.Acquire.Session.HeartbeatEvery = 2*time.Minute, 20*time.Second
	const lost = 2
	var taken atomic.Int32
	d, _ := startWithLostAnswers(b, func(e faultproxy.Event) faultproxy.Verdict {
		if takes(e) && taken.Add(1) <= lost {
			return faultproxy.CutAfter
		}
		return faultproxy.Pass
	})
	d.a.holds("p1")
	b.flows("p1")
	d.ended()
	require.EqualValues(t, lost+1, taken.Load())
	require.Equal(t, lost+1, d.terms(), "each a term of its own")
	require.Zero(t, b.count("p1", "SELECT count(*) FROM audit.held WHERE member = $1", d.peer.Self().Name))
}

// TestP2TheAnswerToARenewalIsLost: the lock was renewed and its holder does not know. One
// such answer costs nothing; when none comes the holder's trust ends, although the row says
// that the lock is its own, and another term begins, its own or the peer's.
func TestP2TheAnswerToARenewalIsLost(t *testing.T) {
	t.Parallel()
	t.Run("every other", func(t *testing.T) {
		t.Parallel()
		b := newTestbed(t, 1, 1)
		b.cfg.Acquire.Lock.TTL, b.cfg.Acquire.Lock.RenewEvery = time.Minute, 200*time.Millisecond
		b.cfg.Acquire.Session.TTL = time.Minute
		var renewed atomic.Int32
		d, _ := startWithLostAnswers(b, func(e faultproxy.Event) faultproxy.Verdict {
			if renews(e) && renewed.Add(1)%2 == 1 {
				return faultproxy.CutAfter
			}
			return faultproxy.Pass
		})
		d.a.holds("p1")
		require.Eventually(t, func() bool { return renewed.Load() > 8 }, patience, 10*time.Millisecond)
		b.flows("p1")
		d.ended()
		require.Equal(t, 1, d.terms())
	})
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		b := newTestbed(t, 1, 1)
		b.cfg.Acquire.Session.TTL = time.Minute
		d, proxy := startWithLostAnswers(b, nil)
		d.a.holds("p1")
		b.flows("p1")
		proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
			if renews(e) {
				return faultproxy.CutAfter
			}
			return faultproxy.Pass
		})
		before := d.terms()
		require.Eventually(t, func() bool { return d.terms() > before }, patience, 10*time.Millisecond, "it trusts itself for ever")
		b.flows("p1")
		d.ended()
	})
}
