// Package report is how a scenario measures and says what it measured: results as JSON,
// quantiles, histograms, the journals that handlers write, and the audit that databases
// write.
package report
