package acquisition

import (
	"context"
	"time"

	"github.com/tenurehq/tenure/internal/store"
)

// limits keeps gates as limits say.
type limits struct {
	place
	*work
	settings *settings

	shared *map[string][]store.Limit // with these of the settings the gates were set
}

// read reads the limits unless they are known.
func (l *limits) read(ctx context.Context) error {
	shared := l.settings.limits.Load()
	if l.gates.Known() && l.shared == shared {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	s, err := store.ReadLimits(ctx, l.pool.Jobs(), (*shared)[l.pool.Name])
	if err == nil {
		l.shared = shared
		l.gates.Set(s, time.Now())
		l.lanes.SetWeights(s.Weights)
	}
	return err
}
