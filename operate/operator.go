package operate

import (
	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/membership"
)

// Operator is what a cluster is looked after by, from a client's process. Its calls do not wait for what handlers and
// tenants' transactions do with their connections.
type Operator struct{ proc *process.Process }

// New is for package tenure: others take what tenure.Client.Operator returns.
func New(p *process.Process) *Operator { return &Operator{p} }

// Jobs lists, explains, changes, cancels and retries jobs.
func (o *Operator) Jobs() *Jobs { return &Jobs{o.proc} }

// DeadLetters groups, retries and deletes dead letters by what they have in common.
func (o *Operator) DeadLetters() *DeadLetters { return &DeadLetters{o.proc} }

// Batches lists and cancels batches.
func (o *Operator) Batches() *Batches { return &Batches{o.proc} }

// Operations lists and cancels operations in the background.
func (o *Operator) Operations() *Operations { return &Operations{o.proc} }

// Schedules sets, lists, pauses and runs schedules.
func (o *Operator) Schedules() *Schedules { return &Schedules{o.proc} }

// Limits sets, lists and deletes limits on how many jobs run at a time, and how often.
func (o *Operator) Limits() *Limits { return &Limits{o.proc} }

// Queues lists, freezes and thaws queues.
func (o *Operator) Queues() *Queues { return &Queues{o.proc} }

// Kinds freezes and thaws kinds of jobs.
func (o *Operator) Kinds() *Kinds { return &Kinds{o.proc} }

// Tenants lists, explains, limits, freezes and moves tenants.
func (o *Operator) Tenants() *Tenants { return &Tenants{o.proc} }

// Pools tells how pools are, who has their locks, and freezes and thaws them.
func (o *Operator) Pools() *Pools { return &Pools{o.proc} }

// LiveNode is a node that is alive. Member is its process: a node that is started again is another member.
type LiveNode struct{ Name, Member, Address, Version string }

// LiveNodes are the nodes that are alive, as the operator's process sees the cluster; where it has no
// gossip, itself if it is one.
func (o *Operator) LiveNodes() (nodes []LiveNode) {
	for _, m := range o.proc.Cluster.Members() {
		if m.Role == membership.RoleNode {
			nodes = append(nodes, LiveNode{m.Node, m.Name, m.Addr, m.Version})
		}
	}
	return nodes
}
