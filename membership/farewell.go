package membership

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// farewell tells the others that this process leaves.
type farewell struct {
	roster *roster
	unsent atomic.Int32  // packets the leave message has yet to travel in
	sent   chan struct{} // one slot: unsent is zero
}

// notePacket is called for each packet that memberlist fills with broadcasts.
func (f *farewell) notePacket() {
	if f.unsent.Load() > 0 && f.unsent.Add(-1) == 0 {
		nudge(f.sent)
	}
}

// sayFarewell reports whether the message was sent as often as memberlist sends any, or there is
// nobody to hear it.
//
// memberlist's Leave would wait for the former only. That never comes once all
// others have left too, which is what happens when a whole cluster stops: every
// process would sit out its timeout. So Leave only begins, and the rest is counted
// here. It is an estimate; being wrong costs the others a failure detection.
//
// They are told beforehand, each by one datagram: what memberlist spreads looks to them like what it says
// of a member that has died. One that does not get it logs a warning.
func (f *farewell) sayFarewell(ml *memberlist.Memberlist, timeout time.Duration) bool {
	for _, p := range f.roster.listOthers() {
		_ = ml.SendBestEffort(&p.node, message{kind: kindFarewell, from: f.roster.name, to: p.Name}.encode())
	}
	_ = ml.Leave(time.Millisecond) // its error is that it did not wait
	others := f.roster.countOthers()
	if others == 0 {
		return true
	}
	f.unsent.Store(int32(retransmitMult * math.Ceil(math.Log10(float64(others+2))))) // memberlist's formula
	select {
	case <-f.sent:
		return true
	case <-f.roster.alone:
		return true
	case <-time.After(timeout):
		return false
	}
}
