//go:build unix

package fleet

import "syscall"

// Freeze stops the process where it stands, as a machine that is suspended does.
func (p *Process) Freeze() { p.signal(syscall.SIGSTOP) }

// Thaw lets it go on.
func (p *Process) Thaw() { p.signal(syscall.SIGCONT) }
