// Package tracing writes and reads the names of spans as W3C's header traceparent has them, in which a
// job's meta keeps the span that it was enqueued in. It keeps nothing, and is safe for concurrent use.
package tracing
