package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
)

func newNodes(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes that work on the pools, or did within the last day",
		Long: "A node has a session in every pool that it works on. This lists the nodes that the\n" +
			"databases know; a node that has not worked on any pool yet is missing. A node is idle\n" +
			"if it is alive but no pool has needed it for a while.",
	}
	live := cmd.Flags().Bool("live", false, "only live nodes")
	head := []string{"NODE", "MEMBER", "VERSION", "POOLS", "STATE", "LAST SEEN", "CLAIMS", "KINDS"}
	row := func(n jsonNode) []string { return nodeRow(a.now, n) }
	return list(a, cmd, head, row, func(ctx context.Context, o *operation) (nodes []jsonNode, unanswered error) {
		sessions, unanswered := o.SessionStatuses(ctx)
		nodes = groupSessions(sessions)
		if *live {
			nodes = slices.DeleteFunc(nodes, func(n jsonNode) bool { return n.State != "live" && n.State != "idle" })
		}
		return nodes, unanswered
	})
}

// jsonNode is one process of a node as -o json prints it.
type jsonNode struct {
	Node     string        `json:"node"`
	State    string        `json:"state"` // live, idle (it lives, and no pool needs it), expired, dead or left
	Member   string        `json:"member"`
	Version  string        `json:"version"`
	Address  string        `json:"gossip_address,omitempty"`
	Kinds    []string      `json:"kinds"`
	Sessions []jsonSession `json:"sessions"`
}

// jsonSession is its session in one pool.
type jsonSession struct {
	Pool     string   `json:"pool"`
	ID       string   `json:"id"`
	State    string   `json:"state"` // live, idle (its node lives, and is not needed here), expired (not seen in time, and not declared dead yet), left or dead
	Started  jsonTime `json:"started_at"`
	LastSeen jsonTime `json:"last_seen"`
	Claims   int      `json:"claims"`
}

// groupSessions puts the sessions of each process together, oldest process last.
func groupSessions(sessions []tenure.SessionStatus) []jsonNode {
	var nodes []jsonNode
	at := map[string]int{}
	lives := map[string]bool{} // members that were seen idle a moment ago
	slices.SortStableFunc(sessions, func(a, b tenure.SessionStatus) int { return b.StartedAt.Compare(a.StartedAt) })
	for _, s := range sessions {
		i, known := at[s.Member]
		if !known {
			i = len(nodes)
			at[s.Member] = i
			nodes = append(nodes, jsonNode{Node: s.Node, Member: s.Member, Version: s.Version, Address: s.GossipAddr, Kinds: s.Kinds})
		}
		state := s.State
		switch {
		case state == "live" && s.Expired:
			state = "expired"
		case s.Idle:
			state = "idle"
			lives[s.Member] = lives[s.Member] || s.Unseen < idleSeen
		}
		nodes[i].Sessions = append(nodes[i].Sessions, jsonSession{
			Pool: s.Pool, ID: s.ID.String(), State: state,
			Started: jsonTime{s.StartedAt}, LastSeen: jsonTime{s.LastSeen}, Claims: s.Claims,
		})
	}
	for i := range nodes {
		nodes[i].settle(lives[nodes[i].Member])
	}
	for _, n := range nodes {
		slices.SortFunc(n.Sessions, func(a, b jsonSession) int { return cmp.Compare(a.Pool, b.Pool) })
	}
	slices.SortStableFunc(nodes, func(a, b jsonNode) int { return cmp.Compare(a.Node, b.Node) })
	return nodes
}

// idleSeen is how lately a node that has no session must have said that it lives: it does
// so every 30 s.
const idleSeen = 75 * time.Second

// settle says what the node's state is by those of its sessions. One of a pool says little
// of the node: that ends the session in a pool that has nothing for it.
func (n *jsonNode) settle(seenIdle bool) {
	seen := map[string]time.Time{} // by state, when last
	for _, s := range n.Sessions {
		if !s.LastSeen.Before(seen[s.State]) {
			seen[s.State] = s.LastSeen.Time
		}
	}
	has := func(state string) bool { return !seen[state].IsZero() }
	switch {
	case has("live"):
		n.State = "live"
	case seenIdle && seen["idle"].After(seen["left"]): // else it has ended one since, or has stopped
		n.State = "idle"
	case has("expired"):
		n.State = "expired"
	case has("dead"):
		n.State = "dead"
	default:
		n.State = "left"
	}
	for i, s := range n.Sessions {
		if s.State == "idle" && n.State != "live" && n.State != "idle" {
			n.Sessions[i].State = "left"
		}
	}
}

func nodeRow(now clock, n jsonNode) []string {
	var pools []string
	var seen time.Time
	claims := 0
	for _, s := range n.Sessions {
		pools = append(pools, s.Pool)
		claims += s.Claims
		if s.LastSeen.After(seen) {
			seen = s.LastSeen.Time
		}
	}
	return []string{n.Node, n.Member, n.Version, strings.Join(slices.Compact(pools), ","),
		n.State, now.stamp(seen), strconv.Itoa(claims), strconv.Itoa(len(n.Kinds))}
}
