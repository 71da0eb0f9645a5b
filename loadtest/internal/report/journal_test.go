package report

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

// Handlers are judged by what they wrote down, to the last line before a kill.
func TestJournals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const member, written = "node-1-aaaaaaaa", job.ID(1)
	var want []Line
	for _, node := range []string{"node-1", "node-2"} {
		j, err := OpenJournal(filepath.Join(dir, node+".journal"))
		require.NoError(t, err)
		j.SetMember(member)
		r := &job.Record{ID: written, Turn: 3, Kind: "load.tx"}
		require.NoError(t, j.Around(r, func() error { return nil }))
		reason := errors.New("nonsense")
		require.ErrorIs(t, j.Around(r, func() error { return reason }), reason)
		for _, l := range []Line{{What: "start"}, {What: "end"}, {What: "start"}, {What: "fail", Why: "nonsense"}} {
			l.Member, l.Job, l.Turn, l.Kind = member, written, 3, "load.tx"
			want = append(want, l)
		}
		_, err = j.file.WriteString(`{"at":"2026-01-01T00:0`) // killed in the middle
		require.NoError(t, err)
		require.NoError(t, j.file.Close())
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "node-1.log"), []byte("{}\n"), 0o600))
	got, err := ReadJournals(dir)
	require.NoError(t, err)
	for i := range got {
		require.False(t, got[i].At.IsZero())
		got[i].At = time.Time{}
	}
	require.Equal(t, want, got)
}
