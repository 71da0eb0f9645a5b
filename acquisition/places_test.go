package acquisition

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/job"
)

// Places are neither lost nor given out twice, however long a claim takes.
func TestPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := execution.DefaultConfig()
		cfg.Workers = 8
		r := job.NewRegistry()
		r.Freeze()
		w, err := execution.New(cfg, r, zap.NewNop())
		require.NoError(t, err)
		for _, c := range []struct {
			took      time.Duration
			used      int
			meanwhile int // room while it takes that long
		}{
			{holdPlaces - 1, 3, 2},
			{holdPlaces + 1, 3, 8},
			{holdPlaces - 1, 0, 2},
			{holdPlaces + 1, 0, 8},
		} {
			p := hold(w, w.Reserve(nil, 6))
			time.Sleep(c.took)
			synctest.Wait()
			require.Equal(t, c.meanwhile, w.Room())
			p.use(c.used)
			require.Equal(t, 8-c.used, w.Room())
			time.Sleep(time.Second)
			require.Equal(t, 8-c.used, w.Room())
			w.Release(c.used)
		}
	})
}
