package devpg

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	dirPrefix = "tenure-pg-"
	ownerFile = "owner"
	memoryDir = "/dev/shm"
	// socketPort only names the socket file; nothing listens on it.
	socketPort = 5432
	// maxSocketPath is what every system has room for in a socket address.
	maxSocketPath = 103
)

// directory holds everything of one server:
//
//	owner           locked as long as the parent lives; its pid, for people
//	log             what initdb and postgres say
//	data            the cluster
//	.s.PGSQL.5432   the socket
//
// The lock tells the living from the dead better than a pid could: it is gone
// the moment its process is, whatever reuses the pid, and it also holds between
// containers that share /tmp but not their processes.
type directory struct {
	path       string
	owner, log *os.File
}

func (d *directory) data() string { return filepath.Join(d.path, "data") }

// newDirectory makes all files that this process writes, before the directory
// is handed to the user the server runs as: from then on, a link planted there
// could send root's writes anywhere.
func newDirectory(base string) (_ *directory, err error) {
	path, err := os.MkdirTemp(base, dirPrefix)
	if err != nil {
		return nil, err
	}
	d := &directory{path: path}
	defer func() {
		if err != nil {
			_ = d.remove() // the first error says more
		}
	}()
	if d.log, err = os.OpenFile(filepath.Join(path, "log"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	// Locked before it has the name that sweep looks for.
	unlocked := filepath.Join(path, ownerFile+".new")
	if d.owner, err = os.OpenFile(unlocked, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, err
	}
	if err = tryLock(d.owner); err != nil {
		return nil, fmt.Errorf("lock %s: %w", unlocked, err)
	}
	if _, err = d.owner.WriteString(strconv.Itoa(os.Getpid()) + "\n"); err != nil {
		return nil, err
	}
	return d, os.Rename(unlocked, filepath.Join(path, ownerFile))
}

// remove gives the lock back last, so that no other process sweeps meanwhile.
func (d *directory) remove() error {
	err := os.RemoveAll(d.path)
	_ = d.log.Close()
	_ = d.owner.Close()
	return err
}

// logTail is the end of the log, for error messages.
func (d *directory) logTail() string {
	const most = 2000
	info, err := d.log.Stat()
	if err != nil {
		return ""
	}
	from := max(0, info.Size()-most)
	tail, _ := io.ReadAll(io.NewSectionReader(d.log, from, most)) // half a log is better than none
	return strings.TrimSpace(string(tail))
}

// chooseBase prefers memory for what need not survive: a database is three
// hundred files, and file systems on disk take up to a millisecond to make one.
// Anyone who sets TMPDIR has a reason to want it there.
func chooseBase(o Options) string {
	if (o.InMemory || !o.Durable) && os.Getenv("TMPDIR") == "" && roomInMemory() {
		return memoryDir
	}
	return diskBase()
}

// bases are all places that a server of ours may have been left in.
func bases() []string {
	all := []string{diskBase(), "/tmp", memoryDir}
	slices.Sort(all)
	return slices.Compact(all)
}

// diskBase is TMPDIR, or /tmp when the socket's path would get too long there or
// the user that the server runs as could not get in.
func diskBase() string {
	base, err := filepath.Abs(os.TempDir())
	if err != nil {
		return "/tmp"
	}
	if len(socketFile(filepath.Join(base, dirPrefix+"1234567890"), 65535)) > maxSocketPath {
		return "/tmp"
	}
	if os.Geteuid() != 0 {
		return base
	}
	for dir := base; ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil || info.Mode()&0o001 == 0 {
			return "/tmp"
		}
		if dir == filepath.Dir(dir) {
			return base
		}
	}
}

func socketFile(dir string, port int) string {
	return filepath.Join(dir, ".s.PGSQL."+strconv.Itoa(port))
}

// sweep removes the directories whose parents are dead. It reports nothing: what
// it cannot remove, a later start may.
func sweep(base string) {
	entries, _ := os.ReadDir(base)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.IsDir() && strings.HasPrefix(e.Name(), dirPrefix) && isOurs(info) {
			sweepOne(filepath.Join(base, e.Name()), info)
		}
	}
}

func sweepOne(dir string, info fs.FileInfo) {
	// The user of the directory may have put anything there: follow no link, wait at no pipe.
	owner, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDONLY|openSafely, 0)
	if err != nil {
		// If there is none, its parent died, or is, between two of the first lines of
		// newDirectory. One that cannot be opened is another user's, and may be locked: root
		// runs its servers as nobody, who would take their directories for its own.
		if errors.Is(err, fs.ErrNotExist) && time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(dir)
		}
		return
	}
	defer func() { _ = owner.Close() }()
	if tryLock(owner) != nil {
		return // the parent lives
	}
	if answers(dir) {
		endOrphan(filepath.Join(dir, "data"))
		return // its directory goes at the next sweep
	}
	// data first: if a server that is shutting down still writes there, the owner file remains for the next sweep.
	if os.RemoveAll(filepath.Join(dir, "data")) == nil {
		_ = os.RemoveAll(dir)
	}
}

// answers tells whether a server listens on a socket in dir.
func answers(dir string) bool {
	sockets, _ := filepath.Glob(filepath.Join(dir, ".s.PGSQL.*[0-9]"))
	for _, s := range sockets {
		if conn, err := net.DialTimeout("unix", s, time.Second); err == nil {
			_ = conn.Close()
			return true
		}
	}
	return false
}

// endOrphan stops a server that outlived its parent, where the system does not
// do that by itself. Root must not: the pid was written by somebody else.
func endOrphan(data string) {
	if os.Geteuid() == 0 {
		return
	}
	raw, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	if pid, err := strconv.Atoi(strings.TrimSpace(first)); err == nil && pid > 1 {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Signal(syscall.SIGINT)
		}
	}
}
