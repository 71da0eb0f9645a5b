//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package devpg

import "syscall"

// No such signal here: sweep ends what a killed parent left.
func endWithParent(*syscall.SysProcAttr) {}

func namespaces(int, int) []identity { return nil }

func roomInMemory() bool { return false }
