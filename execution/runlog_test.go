package execution

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/job"
)

// A failed run is logged, though only so many a second, and who asks for it has a line for each job.
func TestEndsAreLogged(t *testing.T) {
	t.Parallel()
	for level, lines := range map[zapcore.Level]map[string]int{
		zap.DebugLevel: {"job has run": 300, "job failed and is tried again": mostLogged, "job goes to the dead letters": 1},
		zap.InfoLevel:  {"job failed and is tried again": mostLogged, "job goes to the dead letters": 1},
		zap.WarnLevel:  {"job goes to the dead letters": 1},
	} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				core, logged := observer.New(level)
				b := newBundle(t, nil, func(r *job.Registry) {
					r.Add(job.Spec{Kind: "fails", Handle: func(context.Context, *job.Record) error { return errBroken }})
					r.Add(job.Spec{Kind: "panics", Handle: func(context.Context, *job.Record) error { panic("boom") }})
					r.Add(job.Spec{Kind: "dies", Handle: func(context.Context, *job.Record) error { return job.Discard(errBroken) }})
				})
				b.workers.ends = newRunLog(zap.New(core))
				b.start()
				for kind, n := range map[string]int{"noop": 300, "fails": 300, "dies": 1} {
					for _, some := range []int{1, n - 1} { // zap counts wrongly if several lines at once begin a second
						b.submit(kind, some)
						for range some {
							b.owner.next(t)
						}
						synctest.Wait()
					}
				}
				for text, want := range lines {
					require.Len(t, logged.FilterMessage(text).All(), want, text)
				}
				b.submit("panics", 1)
				b.owner.next(t)
				require.Contains(t, logged.FilterMessage("job panicked and is tried again").All()[0].ContextMap()["stack"], "runlog_test.go")
				failed := logged.FilterMessage("job goes to the dead letters").All()[0].ContextMap()
				require.Equal(t, "discard: broken", failed["error"])
				require.Equal(t, "dead", failed["outcome"])
				time.Sleep(time.Second)
				b.submit("fails", 1)
				b.owner.next(t)
				if level < zap.WarnLevel {
					require.Len(t, logged.FilterMessage("job failed and is tried again").All(), mostLogged+1)
				}
				b.stop()
			})
		})
	}
}
