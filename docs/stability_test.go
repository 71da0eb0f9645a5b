package docs

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page says of each package that other modules may import whether it is API.
func TestStabilityNamesPackages(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("stability.md")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{if and .GoFiles (ne .Name \"main\")}}{{.ImportPath}}{{end}}", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	require.NoError(t, err)
	const root = "github.com/tenurehq/tenure"
	named := 0
	for _, path := range strings.Fields(string(out)) {
		if strings.Contains(path+"/", "/internal/") {
			continue
		}
		name := strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
		if name == "" {
			name = "tenure"
		}
		require.Contains(t, string(text), "`"+name+"`")
		named++
	}
	require.Greater(t, named, 8)
}
