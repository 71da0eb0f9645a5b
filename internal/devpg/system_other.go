//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package devpg

import (
	"errors"
	"io/fs"
	"os"
)

const openSafely = 0

func tryLock(*os.File) error { return errors.ErrUnsupported }

func identities() ([]identity, error) { return nil, errors.ErrUnsupported }

func isOurs(fs.FileInfo) bool { return false }

func roomInMemory() bool { return false }
