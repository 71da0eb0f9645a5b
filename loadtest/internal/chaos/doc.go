// Package chaos breaks a cluster of node processes and Postgres servers by a fault schedule
// that follows from a seed ([Plan], [Cluster.InjectAll]), and afterwards checks every promise
// of docs/guarantees.md against what databases and handlers wrote down.
package chaos
