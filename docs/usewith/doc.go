// Package usewith has what docs/use-with.md shows, in a module of its own: users of Tenure inherit none
// of the libraries that it stands beside here.
package usewith

// SendInvoice is the job that all of them enqueue.
type SendInvoice struct {
	Invoice int64 `json:"invoice"`
}

// Kind implements job.Args.
func (SendInvoice) Kind() string { return "invoice.send" }
