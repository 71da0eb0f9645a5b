package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// tell prints what is known of a broken promise, in order of time.
func (k *checker) tell(b breach) {
	type entry struct {
		at   time.Time
		text string
	}
	var story []entry
	add := func(at time.Time, format string, args ...any) {
		if !at.IsZero() {
			story = append(story, entry{at, fmt.Sprintf(format, args...)})
		}
	}
	if b.job == 0 {
		add(b.at, "%s BROKEN: %s: %s", b.promise, b.pool, b.what)
	} else {
		add(b.at, "%s BROKEN: job %v of %s %s", b.promise, b.job, b.pool, b.what)
	}
	add(k.acked[b.job], "enqueued")
	of := map[int64]bool{} // claims on the job
	sessions := map[uuid.UUID]bool{}
	for _, e := range k.events {
		switch {
		case e.What == "claimed" && slices.Contains(e.Jobs, b.job):
			of[e.Claim], sessions[e.Session] = true, true
			add(e.At, "claim %d of session %v under epoch %d, turn %d, %d jobs", e.Claim, e.Session, e.Epoch, e.Turn, len(e.Jobs))
		case of[e.Claim] && e.Claim != 0:
			add(e.At, "claim %d %s", e.Claim, e.What)
		}
	}
	for _, e := range k.events {
		switch e.What {
		case "live", "dead", "left":
			if sessions[e.Session] {
				add(e.At, "session %v of %s is %s", e.Session, e.Member, e.What)
			}
		case "taken", "offered":
			add(e.At, "lock %s, %s, epoch %d", e.What, e.Member, e.Epoch)
		}
	}
	for _, l := range k.runs[b.job] {
		add(l.At, "handler on %s: %s, turn %d %s", l.Member, l.What, l.Turn, l.Why)
	}
	for _, e := range k.Effects[b.job] {
		add(e.At, "effect by %s, turn %d", e.What, e.turn)
	}
	for _, e := range k.Ends[b.job] {
		add(e.At, "ended: %s, turn %d", e.What, e.turn)
	}
	for _, l := range k.chaos.lives {
		add(l.born, "%s started", l.member)
		add(l.died, "%s killed", l.member)
	}
	for _, f := range k.faults {
		add(f.began, "fault: %v", f)
		add(f.ended, "mended: %v", f)
	}
	slices.SortStableFunc(story, func(a, b entry) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	for _, e := range story {
		k.chaos.printAt(e.at, e.text)
	}
}
