package membership

import (
	"context"
	"fmt"

	"github.com/hashicorp/memberlist"
	"go.uber.org/zap"
)

// Handle registers fn for messages of one kind. Kinds are agreed on by the
// packages that use them; the same on all members. fn is called by one goroutine
// for all kinds, one message at a time, so it must return soon: meanwhile at most
// 1024 messages wait, beyond which the oldest are dropped and counted. from is the
// sender's member name, as it claims; payload is fn's to keep. An error says that it is
// not what a message of this kind should be; it is counted.
//
// Handle must be called before Start, and once per kind; otherwise it panics.
func (c *Cluster) Handle(kind byte, fn func(from string, payload []byte) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != created {
		panic("membership: Handle after Start")
	}
	if _, ok := c.handlers[kind]; ok {
		panic(fmt.Sprintf("membership: kind %d is handled already", kind))
	}
	c.handlers[kind] = fn
}

// Send sends payload, at most [MaxPayload] bytes, to the member with this name in
// one datagram and does not wait. It may arrive late, twice, in any order, or
// never, and nobody finds out. A message to this process itself is delivered to
// its own handler. Errors: ErrUnknownMember, ErrTooLarge, ErrNotRunning, or the
// socket's.
func (c *Cluster) Send(to string, kind byte, payload []byte) error {
	if err := checkPayload(payload, MaxPayload); err != nil {
		return err
	}
	ml, node, m, err := c.address(to, kind, payload)
	if err != nil || ml == nil {
		return err
	}
	if err := ml.SendBestEffort(node, m.encode()); err != nil {
		c.metrics.sendFailed.WithLabelValues("udp").Inc()
		return fmt.Errorf("send message to %s: %w", to, err)
	}
	c.metrics.sent.WithLabelValues("udp").Inc()
	return nil
}

// SendReliable sends payload, at most [MaxReliablePayload] bytes, over a TCP
// connection of its own. It returns when ctx ends, and in any case within the
// profile's dial and stream timeouts (local 3 s, lan 5 s, wan 15 s).
//
// There is no delivery guarantee: nil means that the receiver's kernel took the
// bytes. A paused process reads them minutes later, a member with another key
// never. An error does not mean that the message was not delivered, either.
// Errors: those of Send, ErrBusy when 64 calls are under way, and ctx's.
func (c *Cluster) SendReliable(ctx context.Context, to string, kind byte, payload []byte) error {
	if err := checkPayload(payload, MaxReliablePayload); err != nil {
		return err
	}
	ml, node, m, err := c.address(to, kind, payload)
	if err != nil || ml == nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("send message to %s: %w", to, context.Cause(ctx))
	}
	select {
	case c.reliable <- struct{}{}:
	default:
		return ErrBusy
	}
	// memberlist knows no contexts. The goroutine outlives this call by the
	// timeouts at most; Stop ends its stream and waits for it.
	sent := make(chan error, 1)
	if !c.spawn(func() {
		defer func() { <-c.reliable }()
		sent <- ml.SendReliable(node, m.encode())
	}) {
		<-c.reliable
		return ErrNotRunning
	}
	select {
	case err = <-sent:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		c.metrics.sendFailed.WithLabelValues("tcp").Inc()
		return fmt.Errorf("send message to %s: %w", to, err)
	}
	c.metrics.sent.WithLabelValues("tcp").Inc()
	return nil
}

// address finds the receiver. The message has been delivered already, to this
// process, if neither a memberlist nor an error comes back.
func (c *Cluster) address(to string, kind byte, payload []byte) (*memberlist.Memberlist, *memberlist.Node, message, error) {
	m := message{kind: kind, from: c.name, to: to, payload: payload}
	c.mu.Lock()
	ph, ml := c.phase, c.ml
	p, ok := c.others[to]
	c.mu.Unlock()
	switch {
	case ph != running:
		return nil, nil, m, ErrNotRunning
	case to == c.name:
		m.payload = append([]byte(nil), payload...)
		c.metrics.sent.WithLabelValues("local").Inc()
		c.receive(m)
		return nil, nil, m, nil
	case !ok:
		return nil, nil, m, fmt.Errorf("send message to %s: %w", to, ErrUnknownMember)
	}
	return ml, &p.node, m, nil
}

// spawn starts fn in a goroutine Stop waits for; false once Stop has begun.
func (c *Cluster) spawn(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != running {
		return false
	}
	c.tasks.Go(fn)
	return true
}

// receive queues a message for deliver, or drops it. It never blocks.
func (c *Cluster) receive(m message) {
	if m.to != c.name {
		c.metrics.dropped.WithLabelValues("misaddressed").Inc()
		return
	}
	if c.handlers[m.kind] == nil {
		c.metrics.dropped.WithLabelValues("unknown_kind").Inc()
		return
	}
	c.metrics.received.Inc()
	if c.inbox.push(m) {
		c.metrics.dropped.WithLabelValues("queue_full").Inc()
	}
}

// deliver calls the handlers. What is still queued when Stop begins is lost, as
// any message may be.
func (c *Cluster) deliver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.inbox.ready:
		}
		for ctx.Err() == nil {
			m, ok := c.inbox.pop()
			if !ok {
				break
			}
			if err := c.handlers[m.kind](m.from, m.payload); err != nil {
				c.metrics.malformed.WithLabelValues("payload").Inc()
				c.log.Debug("message dropped", zap.String("from", m.from), zap.Error(err))
			}
		}
	}
}
