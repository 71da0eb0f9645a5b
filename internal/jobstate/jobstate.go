// Package jobstate is the table of the states that jobs are listed in, and of what follows from each. What
// becomes of one run, which can be more than that, is a [job.State].
package jobstate

import (
	"slices"

	"github.com/tenurehq/tenure/job"
)

// Stage is what a job's state means for what can be done to it.
type Stage int8

// The stages.
const (
	Waits    Stage = iota + 1 // for its turn, its time or other jobs
	InFlight                  // somebody has it, and may be running it
	Aside                     // until somebody resumes it
	Dead                      // a dead letter: it does not run any more, unless somebody retries it
	Finished                  // over, and kept for the retention time
)

// State is a row of the table.
type State struct {
	Word  string
	Stage Stage
	Since string // what happened, or happens, at the job's time; "": it has none, or that is no use to people
	Tone  string // how the dashboard shows it: those of style.css; "": like any word
}

// table is in the order in which people are shown the states.
var table = []State{
	{"waiting", Waits, "", "later"},
	{"claimed", InFlight, "", ""},
	{"running", InFlight, "handed over", "live"},
	{"locked", InFlight, "lock expires", ""},
	{"scheduled", Waits, "due", "later"},
	{job.Retrying.String(), Waits, "due", "again"},
	{"awaiting", Waits, "", "later"},
	{"suspended", Aside, "suspended", "held"},
	{job.Dead.String(), Dead, "died", "bad"},
	{job.Done.String(), Finished, "finished", "good"},
	{"business_error", Finished, "ended", "bad"},
	{job.Cancelled.String(), Finished, "cancelled", "over"},
}

// Of is the state of that word; the zero State: it is none that jobs are listed in.
func Of(word string) State {
	i := slices.IndexFunc(table, func(s State) bool { return s.Word == word })
	if i < 0 {
		return State{}
	}
	return table[i]
}

// Words are those of the states of some stages.
func Words(of ...Stage) (words []string) {
	for _, s := range table {
		if slices.Contains(of, s.Stage) {
			words = append(words, s.Word)
		}
	}
	return words
}

// Ended tells whether a job does not run any more, unless somebody retries it.
func (s State) Ended() bool { return s.Stage >= Dead }

// Failed tells whether a job ended otherwise than well, so that people ask why.
func (s State) Failed() bool { return s.Ended() && s.Word != job.Done.String() }
