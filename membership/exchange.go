package membership

import "go.uber.org/zap"

// exchanged is what members tell one another beyond metadata.
type exchanged struct {
	state func() []byte
	merge func(from string, state []byte) error
}

// State on the wire:
//
//	byte 0     version, 1
//	string     sender's member name (a length byte, then the bytes)
//	bytes      state, to the end
const stateVersion = 1

// maxState bounds what is sent and accepted, in bytes.
const maxState = 1 << 20

// Exchange has state, at most 1 MiB, sent to one other member after another every
// fifteen seconds or so (the more members, the less often), and to a member through which
// this process joins; merge is called with what they send back, and who they say they are.
// Both are called by goroutines of their own and must return soon. So what everybody is to
// know gets to everybody in time, messages being lost or not. Exchange must be called
// before Start.
func (c *Cluster) Exchange(state func() []byte, merge func(from string, state []byte) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != created {
		panic("membership: Exchange after Start")
	}
	c.exchanged = exchanged{state, merge}
}

func (c *Cluster) state() []byte {
	if c.exchanged.state == nil {
		return nil
	}
	state := c.exchanged.state()
	if len(state) == 0 {
		return nil
	}
	if len(state) > maxState {
		c.log.Warn("state is too large to be told to other members", zap.Int("bytes", len(state)), zap.Int("allowed", maxState))
		return nil
	}
	return append(appendString([]byte{stateVersion}, c.name), state...)
}

func (c *Cluster) merge(b []byte) {
	if len(b) == 0 || c.exchanged.merge == nil {
		return
	}
	if from, state, ok := decodeState(b); !ok || c.exchanged.merge(from, state) != nil {
		c.metrics.malformed.WithLabelValues("state").Inc()
	}
}

// decodeState keeps nothing of b but state.
func decodeState(b []byte) (from string, state []byte, ok bool) {
	if len(b) < 2 || b[0] != stateVersion || len(b) > maxState+257 {
		return "", nil, false
	}
	name, state, ok := cutString(b[1:])
	return string(name), state, ok
}
