package membership

import (
	"fmt"
	"slices"
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
	if _, ok := c.mail.handlers[kind]; ok {
		panic(fmt.Sprintf("membership: kind %d is handled already", kind))
	}
	c.mail.handlers[kind] = fn
}

// Exchange has state, at most 1 MiB, sent to one other member after another every
// fifteen seconds or so (the more members, the less often), and to a member through which
// this process joins; merge is called with what they send back, and the name that they give.
// Both are called by goroutines of their own and must return soon. So what everybody is to
// know gets to everybody in time, messages being lost or not. Exchange must be called
// before Start.
func (c *Cluster) Exchange(state func() []byte, merge func(from string, state []byte) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != created {
		panic("membership: Exchange after Start")
	}
	c.exchange.state, c.exchange.merge = state, merge
}

// Send sends payload, at most [MaxPayload] bytes, to the member with this name in
// one datagram and does not wait. It may arrive late, twice, in any order, or
// never, and nobody finds out. A message to this process itself is delivered to
// its own handler. Errors: ErrUnknownMember, ErrTooLarge, ErrNotRunning, or the
// socket's.
func (c *Cluster) Send(to string, kind byte, payload []byte) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("%w: %d bytes, %d are allowed", ErrTooLarge, len(payload), MaxPayload)
	}
	m := message{kind: kind, from: c.name, to: to, payload: payload}
	c.mu.Lock()
	ph, ml := c.phase, c.ml
	p, ok := c.others[to]
	c.mu.Unlock()
	switch {
	case ph != running:
		return ErrNotRunning
	case to == c.name:
		m.payload = slices.Clone(payload)
		c.metrics.sent.WithLabelValues("local").Inc()
		c.mail.receive(m)
		return nil
	case !ok:
		return fmt.Errorf("send message to %s: %w", to, ErrUnknownMember)
	}
	if err := ml.SendBestEffort(&p.node, m.encode()); err != nil {
		c.metrics.sendFailed.WithLabelValues("udp").Inc()
		return fmt.Errorf("send message to %s: %w", to, err)
	}
	c.metrics.sent.WithLabelValues("udp").Inc()
	return nil
}
