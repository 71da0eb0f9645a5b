//go:build unix

package demo

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps the terminal's Ctrl-C for the demo, which stops its nodes itself.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
