package devpg

import (
	"os"
	"syscall"
)

func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGINT }

// namespaces offers a user namespace in which we appear to be nobody: for
// containers where changing the user is refused. The files stay ours.
func namespaces(uid, gid int) []identity {
	return []identity{{name: "nobody in a user namespace", uid: os.Geteuid(), gid: os.Getegid(), attr: func() *syscall.SysProcAttr {
		a := attr()
		a.Cloneflags = syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: os.Getegid(), Size: 1}}
		return a
	}}}
}

// roomInMemory tells whether memoryDir is one and has room for a few gigabytes:
// the WAL alone may take one. Containers often have 64 MB.
func roomInMemory() bool {
	const (
		tmpfs  = 0x01021994
		enough = 4 << 30
	)
	var st syscall.Statfs_t
	err := syscall.Statfs(memoryDir, &st)
	return err == nil && st.Type == tmpfs && st.Bavail*uint64(st.Bsize) >= enough
}
