// Package deadletter groups dead letters by what they died of, so that a person can look at a
// million of them.
//
// [Pattern] is what the errors of one cause have in common: numbers, ids, addresses, times and
// quoted text are replaced. [Groups] counts the dead letters of each kind and pattern, in memory
// that does not grow with their number.
//
// It is pure: no I/O, no clock. Nothing here may be used concurrently; Pattern may.
package deadletter
