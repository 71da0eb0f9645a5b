// Command tenure is a Tenure node with built-in handlers, and the operator's tool.
//
//	tenure serve            runs a node until SIGINT or SIGTERM
//	tenure migrate          brings the pools' ledgers to this version
//	tenure enqueue          adds a job
//	tenure jobs             lists, shows, retries and cancels jobs
//	tenure locks, nodes     say who acquires from which pool, and who works there
//	tenure config           checks and shows the configuration
//
// The operating commands read the node's configuration and talk to the databases
// themselves rather than to a node: they work while no node is up, which is when
// they are needed most. They do not join the gossip, so a job enqueued here starts
// with its pool's next look, acquire.idle_wait at the latest.
//
// Data goes to stdout, everything else to stderr. The exit code is 0 when all went
// well, 1 when something failed, and 2 for wrong usage or a refused configuration.
package main
