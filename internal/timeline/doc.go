// Package timeline knows which timeline each pool's database has reached, after fail-overs.
//
// Every promotion of a standby begins a new timeline, so a node that still writes on an
// earlier one talks to a primary that was replaced. Only the other nodes can tell it. They
// exchange what they have reached, and a [Table] keeps the latest of it by [ClusterID].
//
// # What it promises
//
// What another member says takes no pool out of service: it may be wrong, or a datagram in
// somebody else's name. It only opens an inquiry. All nodes are asked who has reached a
// later timeline, each with a token of its own, and only an answer with the token of the
// node it comes from is believed, for a minute, unless it is repeated. A node that has
// heard of a timeline without having reached it does not answer. An inquiry that nobody
// confirms ends without an effect.
//
// All methods of Table are safe for concurrent use.
//
// # What it leaves to others
//
// Package routing asks databases where they are and refuses connections to replaced ones;
// package internal/proposal carries the messages.
package timeline
