package membership

import (
	"math"
	"time"

	"go.uber.org/zap"
)

// leave is Stop's work. The order matters: outgoing streams end first, so that a
// join under way cannot hold it up, and gossip needs none to spread the word; and
// memberlist panics if it is to leave after its shutdown.
func (c *Cluster) leave(timeout time.Duration) {
	defer close(c.stopDone)
	c.cancel(errStopping)
	if c.ml != nil {
		if !c.spread(timeout) {
			c.log.Warn("leave message did not spread; the others will find out by themselves")
		}
		if err := c.ml.Shutdown(); err != nil {
			c.log.Warn("gossip did not shut down cleanly", zap.Error(err))
		}
	}
	c.tasks.Wait()
}

// spread tells the others that this process leaves, and reports whether the
// message was sent as often as memberlist sends any, or there is nobody to hear it.
//
// memberlist's Leave would wait for the former only. That never comes once all
// others have left too, which is what happens when a whole cluster stops: every
// process would sit out its timeout. So Leave only begins, and the rest is counted
// here. It is an estimate; being wrong costs the others a failure detection.
func (c *Cluster) spread(timeout time.Duration) bool {
	_ = c.ml.Leave(time.Millisecond) // its error is that it did not wait
	c.mu.Lock()
	others := len(c.others)
	c.mu.Unlock()
	if others == 0 {
		return true
	}
	c.unsent.Store(int32(retransmitMult * math.Ceil(math.Log10(float64(others+2))))) // memberlist's formula
	select {
	case <-c.gone:
		return true
	case <-time.After(timeout):
		return false
	}
}
