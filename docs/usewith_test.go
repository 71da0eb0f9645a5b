package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/codeblocks"
)

// The code of the page is that of the module beside it, whose tests pass.
func TestUseWith(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a module of its own")
	}
	t.Parallel()
	files, err := filepath.Glob("usewith/*.go")
	require.NoError(t, err)
	var all strings.Builder
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		all.Write(text)
	}
	blocks, err := codeblocks.Read("use-with.md")
	require.NoError(t, err)
	require.Len(t, blocks, 4)
	for _, b := range blocks {
		require.Equal(t, "go", b.Language)
		require.Contains(t, all.String(), b.Text, "use-with.md:%d", b.Line)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "./...")
	cmd.WaitDelay = time.Minute // for what it has left running
	cmd.Dir = "usewith"
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
