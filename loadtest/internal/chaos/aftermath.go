package chaos

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

// aftermath is how long faults of a kind kept jobs from running. It is worth something if
// one fault happens at a time, and what it did is over before the next.
type aftermath struct {
	Faults    int       `json:"faults"`
	Noticed   durations `json:"noticed"`   // of each lock whose connection fell silent: from then until its holder said so
	Pause     durations `json:"pause"`     // of each: the longest time in which some pool started no job
	Resumed   durations `json:"resumed"`   // of each pool that nobody could run jobs of: from the fault's end until one started
	Again     durations `json:"again"`     // of each job that a killed process ran: from its death until it was started once more
	Cancelled durations `json:"cancelled"` // of each job that a frozen process ran, its session being dead by then: from when it went on until the handler ended
}

// durations are of one thing; JSON gets how many, and their quantiles.
type durations []time.Duration

func (d durations) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		N      int     `json:"n"`
		Median float64 `json:"median_seconds"`
		P99    float64 `json:"p99_seconds"`
		Worst  float64 `json:"worst_seconds"`
	}{len(d), report.Quantile(d, 0.5), report.Quantile(d, 0.99), report.Quantile(d, 1)})
}

// aftermaths looks at what handlers wrote down and holders complained of, in order, in the
// light of the faults.
func aftermaths(c *Cluster, faults []*Fault, lines []report.Line, complaints []complaint) map[string]*aftermath {
	starts, runs := make([][]time.Time, len(c.Bed.Pools)), map[job.ID][]report.Line{}
	for _, l := range lines {
		runs[l.Job] = append(runs[l.Job], l)
		if n := int(l.Job>>poolBits) - 1; l.What == "start" && n >= 0 && n < len(starts) {
			starts[n] = append(starts[n], l.At)
		}
	}
	all := map[string]*aftermath{}
	for i, f := range faults {
		of := all[f.Kind]
		if of == nil {
			of = &aftermath{}
			all[f.Kind] = of
		}
		of.Faults++
		end := f.ended // of the last one: then nothing is enqueued any more
		if i+1 < len(faults) {
			end = faults[i+1].began
		}
		var longest time.Duration
		for n, pool := range c.Bed.Pools {
			if f.Server >= 0 && f.Server != c.Bed.ServerOf(pool) {
				continue
			}
			longest = max(longest, longestGap(starts[n], f.began, end))
			if f.Kind == "hole" || f.Kind == "deaf" || f.Kind == "mute" {
				of.Noticed = append(of.Noticed, f.noticed(complaints, pool)...)
			}
			if next := after(starts[n], f.ended); i+1 < len(faults) && (f.Node < 0 || f.Kind == blackout) && next < len(starts[n]) {
				of.Resumed = append(of.Resumed, starts[n][next].Sub(f.ended))
			}
		}
		of.Pause = append(of.Pause, longest)
		for _, run := range runs {
			switch {
			case f.Kind == "kill" || f.Kind == blackout:
				of.Again = append(of.Again, f.startedAgain(run)...)
			case f.Kind == "freeze" && f.For >= 2*c.Bed.Config.Acquire.Session.TTL: // else it may not have been declared dead
				of.Cancelled = append(of.Cancelled, f.cancelled(run)...)
			}
		}
	}
	return all
}

// after is the place of the first time that is not before at.
func after(times []time.Time, at time.Time) int {
	n, _ := slices.BinarySearchFunc(times, at, time.Time.Compare)
	return n
}

// longestGap is the longest between two of the times that follow one another and touch a
// span. What is beyond its end does not count: it is another fault's, or there was nothing
// to do any more.
func longestGap(times []time.Time, from, to time.Time) (longest time.Duration) {
	for n := max(after(times, from), 1); n < len(times) && times[n-1].Before(to); n++ {
		longest = max(longest, min(times[n].Sub(times[n-1]), to.Sub(times[n-1])))
	}
	return longest
}

// startedAgain is after how long a job was started once more that ran in a process when the
// fault struck that.
func (f *Fault) startedAgain(run []report.Line) (all []time.Duration) {
	for i, l := range run[:len(run)-1] {
		if next := run[i+1]; l.What == "start" && l.At.Before(f.began) && slices.Contains(f.struck, l.Member) && next.What == "start" && next.At.After(f.began) {
			all = append(all, next.At.Sub(f.began))
		}
	}
	return all
}

// cancelled is how long the handler of a job went on that ran in a process when the fault
// struck that, counted from the fault's end.
func (f *Fault) cancelled(run []report.Line) (all []time.Duration) {
	for i, l := range run {
		if l.What != "start" || !l.At.Before(f.began) || !slices.Contains(f.struck, l.Member) {
			continue
		}
		for _, next := range run[i+1:] {
			if next.Member == l.Member && next.Turn == l.Turn && next.What != "start" {
				if next.At.After(f.ended) {
					all = append(all, next.At.Sub(f.ended))
				}
				break
			}
		}
	}
	return all
}

// noticed is after how long the node that the fault cut off said of a pool that it could
// not renew its lock; empty: it did not, as it held none.
func (f *Fault) noticed(complaints []complaint, pool string) []time.Duration {
	for _, c := range complaints {
		if c.node == f.Node && c.pool == pool && c.at.After(f.began) && c.at.Before(f.ended) {
			return []time.Duration{c.at.Sub(f.began)}
		}
	}
	return nil
}

// complaint is a line of a node's log that says that it could not renew a lock.
type complaint struct {
	node int
	pool string
	at   time.Time
}

// readComplaints reads the nodes' logs.
func readComplaints(f *fleet.Fleet) (all []complaint, err error) {
	for i, n := range f.Nodes {
		text, err := os.ReadFile(n.LogFile())
		if err != nil {
			return nil, err
		}
		for l := range strings.Lines(string(text)) {
			if c, ok := parseComplaint(l); ok {
				c.node = i
				all = append(all, c)
			}
		}
	}
	return all, nil
}

// parseComplaint takes apart a line of a node's log: the time, the level, who says it,
// what, and its fields as JSON.
func parseComplaint(l string) (c complaint, ok bool) {
	parts := strings.Split(strings.TrimSpace(l), "\t")
	if len(parts) != 5 || parts[3] != "acquire lock could not be renewed" {
		return c, false
	}
	at, err := time.Parse(bed.LogTime, parts[0])
	var fields struct{ Pool string }
	if err != nil || json.Unmarshal([]byte(parts[4]), &fields) != nil {
		return c, false
	}
	return complaint{pool: fields.Pool, at: at}, true
}
