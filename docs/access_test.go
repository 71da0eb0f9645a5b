package docs

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/config"
)

// What the page about access says to write is a configuration.
func TestAccessSettings(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("access.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	require.Len(t, blocks, 3)
	for _, b := range blocks {
		_, err := config.Parse("access.md", append([]byte("pools: {main: {dsn: 'postgres://localhost/x'}}\n"), b[1]...))
		require.NoError(t, err)
	}
}
