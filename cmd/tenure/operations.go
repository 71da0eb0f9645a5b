package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// noSuchOperation says why an operation may not be found.
const noSuchOperation = "operations are kept for seven days after their end; see: tenure operations list"

var operationCommands = []spec{
	{
		name: "operations list", short: "List operations pool by pool, newest first, with how far they are", forms: list("/operations"),
		columns: "id pool state action of done key_taken skipped=left asked_by created=created_at failure",
		cells:   map[string]cell{"of": of(func(_ *app, o *shownOperation) string { return o.chosen() }), "failure": of(func(_ *app, o *shownOperation) string { return o.failure() })},
	},
	{
		name: "operations show", args: "ID", short: "Show how far an operation is in each pool", forms: []form{{method: http.MethodGet, path: "/operations/{id}", args: "id:operation"}},
		show: showOperation, absent: noSuchOperation,
	},
	{
		name: "operations cancel", args: "ID...", short: "End operations; what they have done stays so", forms: put(http.MethodPost, "/operations/{id}/cancel", "id:operation", ""),
		said: done("operation", "is cancelled"), over: "operation", absent: noSuchOperation,
	},
}

// shownOperation is the part of an operation in one pool as the API answers it.
type shownOperation struct {
	ID, Pool, Action, State, Tenant, Kind, Error, Group, Queue, Tag, Failure string
	Failing                                                                  bool
	JobState                                                                 string    `json:"job_state"`
	Correlation                                                              string    `json:"correlation_id"`
	Died                                                                     time.Time `json:"died_before"`
	Made                                                                     time.Time `json:"made_before"`
	PerSecond                                                                float64   `json:"per_second"`
	Done, Left                                                               int64
	KeyTaken                                                                 int64     `json:"key_taken"`
	By                                                                       string    `json:"asked_by"`
	CreatedAt                                                                time.Time `json:"created_at"`
	EndedAt                                                                  time.Time `json:"ended_at"`
}

// chosen says in words which dead letters or jobs an operation is about.
func (o *shownOperation) chosen() string {
	var parts []string
	for _, p := range [][2]string{{"group", o.Group}, {"kind", o.Kind}, {"tenant", o.Tenant}, {"error", o.Error},
		{"queue", o.Queue}, {"state", o.JobState}, {"tag", o.Tag}, {"correlation id", o.Correlation}} {
		if p[1] != "" {
			parts = append(parts, p[0]+" "+p[1])
		}
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}

func (o *shownOperation) failure() string {
	if o.Failing && o.Failure == "" {
		return "see the node's log"
	}
	return oneLine(o.Failure)
}

func showOperation(r *answer) error {
	var all struct{ Items []shownOperation }
	if err := r.readInto(&all); err != nil || r.format() == asJSON || len(all.Items) == 0 {
		return cmpError(err, func() error { return printJSON(r.a.stdout, r.body) })
	}
	first := &all.Items[0]
	rate := "none: a tenth of the holder's time"
	if first.PerSecond > 0 {
		rate = fmt.Sprintf("%v a second in each pool", first.PerSecond)
	}
	before, at := "died before", first.Died
	if !first.Made.IsZero() {
		before, at = "made before", first.Made
	}
	fields := [][]string{
		{"action", first.Action}, {"of", first.chosen()}, {before, r.a.now.stamp(at)},
		{"rate", rate}, {"asked by", first.By}, {"created", r.a.now.stamp(first.CreatedAt)},
	}
	for _, one := range all.Items {
		text := fmt.Sprintf("%s: %d done, %d whose unique key is taken, %d skipped", one.State, one.Done, one.KeyTaken, one.Left)
		if !one.EndedAt.IsZero() {
			text += ", ended " + r.a.now.stamp(one.EndedAt)
		}
		if one.Failing {
			text += "; the last step failed and is tried again: " + one.failure()
		}
		fields = append(fields, []string{"pool " + one.Pool, text})
	}
	return printTable(r.a.stdout, []string{"id", first.ID}, fields)
}

// cmpError is err, or what do returns if there is none.
func cmpError(err error, do func() error) error {
	if err != nil {
		return err
	}
	return do()
}
