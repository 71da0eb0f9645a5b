package devpg

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// owner is the user a running server has, as the kernel says.
func owner(t *testing.T, s *Server) uint32 {
	t.Helper()
	info, err := os.Stat(fmt.Sprintf("/proc/%d", s.proc.cmd.Process.Pid))
	require.NoError(t, err)
	return info.Sys().(*syscall.Stat_t).Uid
}

// asNobody runs the test that calls it once more, as a user without privileges, who
// cannot read where Go keeps a test's binary.
func asNobody(t *testing.T) {
	t.Helper()
	uid, gid, err := nobody()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("/tmp", "tenure-nobody-")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.Chown(dir, int(uid), int(gid)))
	self, err := os.Executable()
	require.NoError(t, err)
	copied := filepath.Join(dir, "test")
	// By a process of its own: whatever a parallel test starts while this one has the file
	// open for writing keeps it open for a moment, and then it is busy and cannot be started.
	require.NoError(t, exec.Command("cp", self, copied).Run())
	cmd := exec.Command(copied, "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
}

func TestStart_asRootDropsPrivileges(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root has privileges to drop")
	}
	s := setup(t, Options{})
	require.NotZero(t, owner(t, s))
	info, err := os.Stat(s.dir.data())
	require.NoError(t, err)
	require.NotZero(t, info.Sys().(*syscall.Stat_t).Uid)
	require.True(t, isOurs(info), "so that it can be swept")
}

func TestStart_inAUserNamespace(t *testing.T) {
	t.Parallel()
	uid, gid, err := nobody()
	require.NoError(t, err)
	users := namespaces(uid, gid)
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = users[0].attr()
	if err := runProcess(cmd); err != nil {
		t.Skip("user namespaces are refused here:", err)
	}
	bin, err := Find()
	require.NoError(t, err)
	// The first choice fails, as in a container with a single user.
	refused := identity{name: "refused", uid: uid, gid: gid, attr: func() *syscall.SysProcAttr {
		a := attr()
		a.Chroot = "/nonexistent"
		return a
	}}

	s, err := start(t.Context(), bin, Options{}, append([]identity{refused}, users...))
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop(t.Context())) }()
	require.NoError(t, run(t.Context(), s.DSN("postgres"), "SELECT 1"))
	require.EqualValues(t, os.Geteuid(), owner(t, s))

	_, err = start(t.Context(), bin, Options{}, []identity{refused})
	require.ErrorContains(t, err, "initdb as refused")
}

func TestEndOrphan_stopsAServerWithoutParent(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 { // who signals no pid that another user wrote
		asNobody(t)
		return
	}
	s := setup(t, Options{})
	endOrphan(s.dir.data())
	<-s.proc.exited
}

func TestDiskBase_isOpenToNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root starts the server as somebody else")
	}
	closed := t.TempDir()
	require.NoError(t, os.Chmod(closed, 0o700))
	t.Setenv("TMPDIR", closed)
	require.Equal(t, "/tmp", diskBase())
}

func TestEnvironment_doesNotSteerPostgres(t *testing.T) {
	t.Setenv("PGDATA", "/elsewhere")
	t.Setenv("LC_MESSAGES", "de_DE")
	for _, kv := range environment() {
		require.False(t, strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, "LC_MESSAGES"), kv)
	}
	t.Setenv("PGHOST", filepath.Join(t.TempDir(), "elsewhere"))
	t.Setenv("PGPORT", "1")
	t.Setenv("PGUSER", "somebody")
	s := setup(t, Options{})
	require.NoError(t, run(t.Context(), s.DSN("postgres"), "SELECT 1"))
}
