// Command tenure is a Tenure node with built-in handlers, and the operator's tool.
//
//	tenure serve            runs a node until SIGINT or SIGTERM
//	tenure migrate          brings the pools' ledgers to this version
//	tenure enqueue          adds a job
//	tenure jobs             lists, shows, retries and cancels jobs
//	tenure pools, tenants   list, freeze, thaw, drain and move them
//	tenure locks, nodes     show which node holds each pool's lock, and which nodes work there
//	tenure config           checks and shows the configuration
//	tenure reload           makes the node on this machine reload its configuration
//	tenure token            makes secrets for the dashboard and the API
//	tenure demo             runs a cluster on this machine and kills a node
//
// Each operating command is a request of the API, as the tables say that operating.go lists. With --server a node answers
// it, else this process, on the databases of the node's configuration: so the commands also work while no node is up,
// which is when they are needed most. They do not join the gossip, so a job enqueued here starts when its pool is next
// polled, after acquire.idle_wait at the latest.
//
// Data goes to stdout, everything else to stderr. The exit code is 0 when all went
// well, 1 when something failed, and 2 for wrong usage or a refused configuration.
package main
