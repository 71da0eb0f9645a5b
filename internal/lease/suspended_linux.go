package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended is for how long the machine has been suspended since it started. Timers and
// time.Since stand still meanwhile, other machines and databases do not. It is the
// difference of two clocks that are read one after the other: too little if this process
// is held up between them, or, with most, too much.
func suspended(most bool) time.Duration {
	first, second := int32(unix.CLOCK_BOOTTIME), int32(unix.CLOCK_MONOTONIC)
	if most {
		first, second = second, first
	}
	var a, b unix.Timespec
	_ = unix.ClockGettime(first, &a) // neither can fail
	_ = unix.ClockGettime(second, &b)
	d := time.Duration(a.Nano() - b.Nano())
	if most {
		return -d
	}
	return d
}
