//go:build unix

package main

import "syscall"

// freeze stops the process where it stands, as a machine that is suspended does.
func (p *process) freeze() { p.signal(syscall.SIGSTOP) }

// thaw lets it go on.
func (p *process) thaw() { p.signal(syscall.SIGCONT) }
