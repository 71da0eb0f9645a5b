package store

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// The times that a [time.Time] of the ledger has, all of which JSON can say. tenure.job and the other large
// tables have no constraints for this: those would have all their rows read first.
var (
	earliestTime = time.Date(1, time.January, 1, 0, 0, 0, int(time.Microsecond), time.UTC) // not the zero time, which says that there is none
	latestTime   = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
)

// BoundTimes has a connection read 'infinity', and whatever else somebody has set that is further than the
// years 1 to 9999, as the nearest time that there is. pgx takes that for an error, and so one row
// would keep all others of a page or a list from being read.
func BoundTimes(types *pgtype.Map) {
	types.RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: boundedTimes{&pgtype.TimestamptzCodec{}}})
}

type boundedTimes struct{ *pgtype.TimestamptzCodec }

// PlanScan implements pgtype.Codec.
func (c boundedTimes) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*time.Time); !ok {
		return c.TimestamptzCodec.PlanScan(m, oid, format, target)
	}
	return scanBounded{c.TimestamptzCodec.PlanScan(m, oid, format, new(pgtype.Timestamptz))}
}

type scanBounded struct{ read pgtype.ScanPlan }

// Scan implements pgtype.ScanPlan.
func (s scanBounded) Scan(src []byte, dst any) error {
	var t pgtype.Timestamptz
	if err := s.read.Scan(src, &t); err != nil {
		return err
	}
	to := dst.(*time.Time)
	switch {
	case !t.Valid:
		return errors.New("cannot scan NULL into *time.Time")
	case t.InfinityModifier == pgtype.Infinity || t.Time.After(latestTime):
		*to = latestTime
	case t.InfinityModifier == pgtype.NegativeInfinity || t.Time.Before(earliestTime):
		*to = earliestTime
	default:
		*to = t.Time
	}
	return nil
}
