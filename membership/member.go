package membership

// Role says what a member takes part in.
type Role string

const (
	// RoleNode serves pools and can be elected.
	RoleNode Role = "node"
	// RoleClient only sends and receives messages, such as a web process that enqueues.
	RoleClient Role = "client"
	// RoleUnknown is a live member whose metadata this version cannot read. It is never elected.
	RoleUnknown Role = "unknown"
)

// State is where a member stands in its life, for display and metrics.
type State string

const (
	// StateJoining has not settled yet: see [Cluster.Settled].
	StateJoining State = "joining"
	// StateLive takes part in elections, if its role is RoleNode.
	StateLive State = "live"
	// StateDraining is on its way out: see [Cluster.SetDraining].
	StateDraining State = "draining"
)

// Member is one live process as this process sees it. There is no way to tell
// a suspected member from a healthy one: memberlist does not publish it.
type Member struct {
	// Name is unique per process start: the node name, a dash and 8 hex digits.
	Name string
	// Node is the configured node name. Two live members can share it for a
	// while: a node that restarted, and its former self not yet missed.
	Node string
	// Addr is where it gossips, host:port. Empty for a Cluster not started.
	Addr string
	Role Role
	// Joining: started a moment ago and not eligible yet.
	Joining bool
	// Draining: leaving soon and not eligible any more.
	Draining bool
	// Version is the release it runs, as given in Self.
	Version string

	unreachable poolSet
	kindsMark   uint32 // tells the kinds that it handles from others; 0: it says nothing
}

// Reaches reports whether m can be elected for a pool as far as that pool's database
// goes: false once it has said that it does not reach it.
func (m Member) Reaches(pool string) bool { return !m.unreachable.hasPool(hashName(pool)) }

// State sums Joining and Draining up in one word; draining wins.
func (m Member) State() State {
	switch {
	case m.Draining:
		return StateDraining
	case m.Joining:
		return StateJoining
	default:
		return StateLive
	}
}

// Eligible reports whether m can be elected: a node, settled, and not draining.
func (m Member) Eligible() bool {
	return m.Role == RoleNode && !m.Joining && !m.Draining
}
