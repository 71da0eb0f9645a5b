package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/operate"
)

// What a node does is told by all its sessions, and not by that of one pool.
func TestNodeStates(t *testing.T) {
	t.Parallel()
	now := time.Now()
	session := func(state string, ago time.Duration) operate.SessionStatus {
		return operate.SessionStatus{Member: "a-1", State: state, StartedAt: now.Add(-time.Hour), LastSeen: now.Add(-ago), Unseen: ago}
	}
	idle := func(ago time.Duration) operate.SessionStatus {
		s := session("left", ago)
		s.Idle = true
		return s
	}
	expired := session("live", time.Minute)
	expired.Expired = true
	for name, c := range map[string]struct {
		sessions []operate.SessionStatus
		node     string
		each     []string
	}{
		"works":                          {[]operate.SessionStatus{session("live", 0)}, "live", []string{"live"}},
		"is idle in another pool":        {[]operate.SessionStatus{session("live", 0), idle(time.Hour)}, "live", []string{"live", "idle"}},
		"is idle":                        {[]operate.SessionStatus{idle(40 * time.Second), idle(time.Hour)}, "idle", []string{"idle", "idle"}},
		"was idle, and is not seen":      {[]operate.SessionStatus{idle(70 * time.Second), expired}, "expired", []string{"left", "expired"}},
		"is idle, and hangs elsewhere":   {[]operate.SessionStatus{idle(20 * time.Second), expired}, "idle", []string{"idle", "expired"}},
		"was idle, and died":             {[]operate.SessionStatus{idle(2 * time.Minute)}, "left", []string{"left"}},
		"has stopped":                    {[]operate.SessionStatus{session("left", time.Second), idle(10 * time.Second)}, "left", []string{"left", "left"}},
		"has left a pool, and is idle":   {[]operate.SessionStatus{session("left", time.Minute), idle(10 * time.Second)}, "idle", []string{"left", "idle"}},
		"is not seen":                    {[]operate.SessionStatus{expired}, "expired", []string{"expired"}},
		"was declared dead":              {[]operate.SessionStatus{session("dead", time.Minute)}, "dead", []string{"dead"}},
		"was declared dead and is idle":  {[]operate.SessionStatus{session("dead", time.Minute), idle(time.Second)}, "idle", []string{"dead", "idle"}},
		"was declared dead and is back":  {[]operate.SessionStatus{session("dead", time.Minute), session("live", 0)}, "live", []string{"dead", "live"}},
		"of a release that says nothing": {[]operate.SessionStatus{session("left", 5*time.Second)}, "left", []string{"left"}},
	} {
		var each []string
		for _, n := range newNodes(c.sessions, nil) {
			require.Equal(t, c.node, n.NodeState, name)
			each = append(each, n.State)
		}
		require.Equal(t, c.each, each, name)
	}
}

// Gossip knows nodes that are alive and that no pool has seen, or not lately.
func TestNodesThatGossip(t *testing.T) {
	t.Parallel()
	dead := operate.SessionStatus{Pool: "p1", Node: "paused", Member: "paused-1", State: "dead"}
	var said []string
	for _, n := range newNodes([]operate.SessionStatus{dead}, []operate.LiveNode{{Name: "paused", Member: "paused-1"}, {Name: "new", Member: "new-1", Version: "v1"}}) {
		said = append(said, n.Node+" "+n.Pool+" "+n.State+" "+n.NodeState+" "+n.Version)
	}
	require.Equal(t, []string{"new  idle idle v1", "paused p1 dead idle "}, said)
}
