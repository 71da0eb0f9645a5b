package membership

import "go.uber.org/zap"

// exchange is what members tell one another beyond metadata.
type exchange struct {
	name    string // this member's
	log     *zap.Logger
	metrics *metrics
	state   func() []byte                         // written before Start only; nil: there is nothing to tell
	merge   func(from string, state []byte) error // written before Start only
}

// State on the wire:
//
//	byte 0     version, 1
//	string     sender's member name (a length byte, then the bytes)
//	bytes      state, to the end
const stateVersion = 1

// maxState bounds what is sent and accepted, in bytes.
const maxState = 1 << 20

func (e *exchange) encodeState() []byte {
	if e.state == nil {
		return nil
	}
	state := e.state()
	if len(state) == 0 {
		return nil
	}
	if len(state) > maxState {
		e.log.Warn("state is too large to be told to other members", zap.Int("bytes", len(state)), zap.Int("allowed", maxState))
		return nil
	}
	return append(appendString([]byte{stateVersion}, e.name), state...)
}

func (e *exchange) mergeState(b []byte) {
	if len(b) == 0 || e.merge == nil {
		return
	}
	if from, state, ok := decodeState(b); !ok || e.merge(from, state) != nil {
		e.metrics.malformed.WithLabelValues("state").Inc()
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
