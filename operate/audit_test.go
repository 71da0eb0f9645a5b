package operate_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

// Whatever is noted can be asked for, and an action that is mistyped is not taken for one that nobody has done.
func TestAuditActionsAreThoseThatAreNoted(t *testing.T) {
	t.Parallel()
	require.True(t, slices.IsSorted(operate.AuditActions))
	for _, action := range append([]string{"freeze", "job", ""}, operate.AuditActions...) {
		require.NoError(t, operate.AuditFilter{Action: action}.Validate(), action)
	}
	var bad *job.InputError
	require.ErrorAs(t, operate.AuditFilter{Action: "queues.freeze"}.Validate(), &bad)
	require.ErrorContains(t, bad, "queue.freeze")

	noted := regexp.MustCompile(`(?:Deed\(ctx, |action :?= |Action: )"(\w+\.\w*)"|string\(scope\)\+"(\.)"\+do`)
	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)
	found := 0
	for _, path := range append(paths, "../acquisition/spread.go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range noted.FindAllStringSubmatch(string(text), -1) {
			found++
			begins := func(action string) bool { return strings.HasSuffix(m[1], ".") && strings.HasPrefix(action, m[1]) }
			require.True(t, m[2] != "" || slices.Contains(operate.AuditActions, m[1]) || slices.ContainsFunc(operate.AuditActions, begins), "%s: %s", path, m[0])
		}
	}
	require.Greater(t, found, 25)
}
