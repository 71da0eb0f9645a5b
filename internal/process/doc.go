// Package process is what the client, the operator and the external workers of one process share: its configuration,
// the way to the pools, and who is said to have done something.
package process
