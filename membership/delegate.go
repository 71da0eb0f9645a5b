package membership

import (
	"github.com/hashicorp/memberlist"
	"go.uber.org/zap"
)

// delegate is what memberlist calls. It is a type of its own to keep these
// methods out of Cluster's API.
//
// Event methods run under memberlist's node lock: they copy and signal. Calling
// memberlist from them, or waiting for anybody who does, would deadlock. The
// order of locks is memberlist's, then Cluster.mu.
type delegate struct{ c *Cluster }

var (
	_ memberlist.Delegate         = delegate{}
	_ memberlist.EventDelegate    = delegate{}
	_ memberlist.ConflictDelegate = delegate{}
)

// NotifyJoin also reports members that were dead and came back.
func (d delegate) NotifyJoin(n *memberlist.Node) { d.c.putMember(n) }

// NotifyUpdate reports changed metadata.
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.c.putMember(n) }

// NotifyLeave reports members that left and members declared dead.
func (d delegate) NotifyLeave(n *memberlist.Node) { d.c.dropMember(n.Name) }

// NotifyConflict reports two addresses under one member name. Names are random
// per process, so this is a copied machine or a forged packet.
func (d delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.c.noteConflict(existing.Name, existing.Address(), other.Address())
}

// NodeMeta is called from Create and UpdateNode, without memberlist's lock.
func (d delegate) NodeMeta(int) []byte {
	b, err := encodeMeta(d.c.Self())
	if err != nil { // New has encoded the same names
		d.c.log.Error("metadata cannot be announced", zap.Error(err))
	}
	return b
}

// NotifyMsg is called from memberlist's packet loop, and concurrently from
// streams. The buffer is not ours to keep.
func (d delegate) NotifyMsg(b []byte) {
	m, err := decodeMessage(b)
	if err != nil {
		d.c.metrics.malformed.WithLabelValues("message").Inc()
		return
	}
	if m.kind == kindFarewell && m.to == d.c.name {
		d.c.noteFarewell(m.from)
		return
	}
	d.c.mail.receive(m)
}

// GetBroadcasts is called whenever memberlist fills a packet with broadcasts of
// its own, to which nothing is added. See farewell.
func (d delegate) GetBroadcasts(_, _ int) [][]byte {
	d.c.farewell.notePacket()
	return nil
}

// LocalState is sent to one member after another, and to a member that this process joins.
func (d delegate) LocalState(bool) []byte { return d.c.exchange.encodeState() }

// MergeRemoteState takes in what LocalState returned elsewhere.
func (d delegate) MergeRemoteState(b []byte, _ bool) { d.c.exchange.mergeState(b) }
