// Package operate is for those who look after a cluster: people, their tools, and programs that act for them.
//
// An [Operator] belongs to a client's process, see tenure.Client.Operator and tenure.Node.Operator. It has a part for
// each thing that is looked after: jobs, dead letters, batches, operations in the background, schedules, limits, queues,
// kinds, tenants and pools. [Migrate], [Grant] and [Examine] need no process, but a configuration.
// Errors that are named without a package, such as ErrNotFound, are those of package tenure.
//
// The command line and the API do what they do by this package. Everything exported here is safe for concurrent use.
package operate
