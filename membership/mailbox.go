package membership

import (
	"context"

	"go.uber.org/zap"
)

// inboxSize is how many messages may wait for their handler. A reader that is
// this far behind is better off with the newest.
const inboxSize = 1024

// mailbox hands messages for this process to their handlers.
type mailbox struct {
	name     string // this member's
	log      *zap.Logger
	metrics  *metrics
	handlers map[byte]func(from string, payload []byte) error // written before Start only
	inbox    inbox
}

func newMailbox(name string, log *zap.Logger, m *metrics) mailbox {
	return mailbox{name: name, log: log, metrics: m, handlers: map[byte]func(string, []byte) error{}, inbox: make(inbox, inboxSize)}
}

// receive queues a message for deliverAll, or drops it. It never blocks.
func (b *mailbox) receive(m message) {
	if m.to != b.name {
		b.metrics.dropped.WithLabelValues("misaddressed").Inc()
		return
	}
	if b.handlers[m.kind] == nil {
		b.metrics.dropped.WithLabelValues("unknown_kind").Inc()
		return
	}
	b.metrics.received.Inc()
	b.metrics.dropped.WithLabelValues("queue_full").Add(float64(b.inbox.push(m)))
}

// deliverAll calls the handlers. What is still queued when Stop begins is lost, as
// any message may be.
func (b *mailbox) deliverAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-b.inbox:
			if ctx.Err() != nil {
				return
			}
			if err := b.handlers[m.kind](m.from, m.payload); err != nil {
				b.metrics.malformed.WithLabelValues("payload").Inc()
				b.log.Debug("message dropped", zap.String("from", m.from), zap.Error(err))
			}
		}
	}
}

// inbox holds received messages between memberlist's goroutines, which must not
// wait, and the one that calls handlers. When full it drops the oldest message:
// of hints, the newer is the better one.
type inbox chan message

// push never blocks. It returns how many older messages it has dropped to make room.
func (q inbox) push(m message) (dropped int) {
	for {
		select {
		case q <- m:
			return dropped
		default:
		}
		select {
		case <-q:
			dropped++
		default: // the reader has made room
		}
	}
}

// nudge wakes the reader of a one-slot channel, if it is not awake already.
func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
