// Package slogcore has what is logged with zap written by a handler of log/slog, for programs that
// log by that. It is as safe for concurrent use as the handler, and knows nothing of what is logged.
package slogcore
