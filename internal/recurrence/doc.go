// Package recurrence works out when the runs of a schedule are due: by cron, by an interval, or by
// an ISO 8601 repeat, on the clocks of a time zone. It is a function of what it is given: it asks
// for no time and does no I/O but reading time zones.
package recurrence
