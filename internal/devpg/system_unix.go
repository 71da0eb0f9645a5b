//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package devpg

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

const openSafely = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

func tryLock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// identities lists what to try, best first. Root becomes nobody rather than
// postgres, which may own clusters that matter.
func identities() ([]identity, error) {
	self := identity{name: "the current user", uid: os.Geteuid(), gid: os.Getegid(), attr: attr}
	uid, gid, err := nobody()
	switch {
	case os.Geteuid() != 0 && err != nil:
		return []identity{self}, nil
	case os.Geteuid() != 0:
		// The namespace helps where a container's user has no entry in passwd, which PostgreSQL insists on.
		return append([]identity{self}, namespaces(uid, gid)...), nil
	case err != nil:
		return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no other user: %w", err)
	}
	dropped := identity{name: "nobody", uid: uid, gid: gid, attr: func() *syscall.SysProcAttr {
		a := attr()
		a.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return a
	}}
	return append([]identity{dropped}, namespaces(uid, gid)...), nil
}

func nobody() (uid, gid int, err error) {
	u, err := user.Lookup("nobody") // must have an entry in passwd: PostgreSQL looks itself up
	if err != nil {
		return 0, 0, err
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}

// attr puts postgres into a process group of its own, so that a terminal's
// Ctrl-C reaches only the parent, which then stops it in order.
func attr() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	endWithParent(a)
	return a
}

// isOurs tells whether a directory was made by this user, as itself or as nobody.
func isOurs(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	if int(st.Uid) == os.Geteuid() {
		return true
	}
	uid, _, err := nobody()
	return err == nil && os.Geteuid() == 0 && st.Uid == uint32(uid)
}
