package proposal

import (
	"errors"
	"slices"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
)

// These follow acquisition's kinds of messages.
const (
	messageTimelines = acquisition.MessageAnswer + 1 // which databases' successors somebody says were reached
	messageQuestion  = acquisition.MessageAnswer + 2 // whether the receiver has reached some
	messageVoucher   = acquisition.MessageAnswer + 3 // that it has
)

// ShareTimelines has members tell one another which timelines of their databases they have
// reached, at once and from time to time again, so that nobody goes on with a database that was
// replaced. Only nodes tell, and are asked and believed: a client may have been given any DSN.
// It must be called before c and r start.
func ShareTimelines(c *membership.Cluster, r *routing.Router) {
	table := r.Timelines()
	own := table.Reached
	if c.Self().Role == membership.RoleNode {
		c.Handle(messageQuestion, func(from string, question []byte) error {
			answer, err := table.Answer(question)
			if len(answer) > 0 {
				_ = c.Send(from, messageVoucher, answer) // it asks again
			}
			return err
		})
	} else {
		own = func() []byte { return nil }
	}
	c.Exchange(own, table.Hear)
	c.Handle(messageTimelines, table.Hear)
	c.Handle(messageVoucher, func(from string, answer []byte) error {
		if !isNode(c, from) {
			return errNoNode
		}
		return table.Vouch(from, answer)
	})
	table.Connect(gossip{c})
}

var errNoNode = errors.New("only nodes are believed that a database was replaced")

func isNode(c *membership.Cluster, member string) bool {
	return slices.ContainsFunc(nodes(c), func(m membership.Member) bool { return m.Name == member })
}

// nodes are the members that work on pools, but this one.
func nodes(c *membership.Cluster) []membership.Member {
	return slices.DeleteFunc(c.Members(), func(m membership.Member) bool {
		return m.Role != membership.RoleNode || m.Name == c.Self().Name
	})
}

// gossip lets tables of timelines talk.
type gossip struct{ c *membership.Cluster }

// Tell implements timeline.Gossip. Members that a datagram does not reach hear of it later.
func (g gossip) Tell(part []byte) {
	if g.c.Self().Role != membership.RoleNode {
		return
	}
	for _, m := range g.c.Members() {
		if m.Name != g.c.Self().Name {
			_ = g.c.Send(m.Name, messageTimelines, part)
		}
	}
}

// Ask implements timeline.Gossip.
func (g gossip) Ask(question func(member string) []byte) {
	for _, m := range nodes(g.c) {
		_ = g.c.Send(m.Name, messageQuestion, question(m.Name))
	}
}
