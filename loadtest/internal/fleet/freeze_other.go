//go:build !unix

package fleet

// Processes cannot be frozen here: the fault does nothing.
func (p *Process) Freeze() {}
func (p *Process) Thaw()   {}
