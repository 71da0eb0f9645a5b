//go:build !unix

package main

// Processes cannot be frozen here: the fault does nothing.
func (p *process) freeze() {}
func (p *process) thaw()   {}
