// Package external gives jobs to workers outside the cluster, in whatever language: those that were enqueued with
// tenure.External. See tenure.Client.ExternalWorkers and docs/external-workers.md. ErrNotFound is that of package tenure.
package external
