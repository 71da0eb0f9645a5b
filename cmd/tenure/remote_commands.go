package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)

// call is the request of a node's API that a command stands for.
type call struct {
	method string
	path   string // below /api/v1; {name} is an argument or a flag
	// args are what the command's arguments are, in order: names in the path, or fields of the body.
	// Of a call that has one only, each argument is a request of its own.
	args string
	when string // the flag without which the command does not mean this call
	// query and body are the flags that are sent: FLAG, or FLAG=FIELD where more differs than the dashes.
	query, body string
	columns     string // of the table that a list is shown as
	show        func(*app, format, json.RawMessage) error
}

// alone are the commands that speak to nobody.
var alone = map[string]bool{"version": true, "token new": true}

// ofMany are the flags that choose jobs. The API takes a pool for a choice, and the commands do not: it is left out.
const ofMany, ofDead = "tenant kind queue correlation=correlation_id all", "group kind tenant error older=before all rate=per_second"

// calls are the commands that there are with --server, each with the forms that it has there.
var calls = map[string][]call{
	"enqueue": {{method: http.MethodPost, path: "/jobs", args: "kind args", show: showEnqueued,
		body: "tenant in=delay_ms at queue priority max-attempts unique=unique_key unique-for timeout=timeout_ms tag=tags correlation=correlation_id exclusive=exclusive_key skip-retrying external meta after on-failure batch"}},
	"jobs list": {{method: http.MethodGet, path: "/jobs", query: "state tenant kind queue tag correlation=correlation_id pool after limit",
		columns: "id state tenant kind queue pool attempt created_at error"}},
	"jobs show": {{method: http.MethodGet, path: "/jobs/{id}", args: "id"}},
	"jobs why":  {{method: http.MethodGet, path: "/jobs/{id}/why", args: "id", show: showWhy}},
	"jobs dead": {{method: http.MethodGet, path: "/dead-letters/groups", query: "group kind tenant error older=before pool",
		columns: "group count kind first_died_at last_died_at sample error"}},
	"jobs retry": {{method: http.MethodPost, path: "/jobs/{id}/retry", args: "id"},
		{method: http.MethodPost, path: "/dead-letters/retry", when: "background", body: ofDead}},
	"jobs delete": {{method: http.MethodPost, path: "/dead-letters/delete", when: "background", body: ofDead}},
	"jobs cancel": {{method: http.MethodPost, path: "/jobs/{id}/cancel", args: "id"},
		{method: http.MethodPost, path: "/jobs/cancel", body: ofMany + " state tag rate=per_second"}},
	"jobs suspend": {{method: http.MethodPost, path: "/jobs/{id}/suspend", args: "id", query: "until"},
		{method: http.MethodPost, path: "/jobs/suspend", body: ofMany + " until"}},
	"jobs resume": {{method: http.MethodPost, path: "/jobs/{id}/resume", args: "id"},
		{method: http.MethodPost, path: "/jobs/resume", body: ofMany}},
	"jobs change": {{method: http.MethodPatch, path: "/jobs/{id}", args: "id", body: "priority at=due_at max-attempts timeout=timeout_ms"}},

	"operations list":   {{method: http.MethodGet, path: "/operations", columns: "id pool state action tenant kind group done key_taken left asked_by created_at"}},
	"operations show":   {{method: http.MethodGet, path: "/operations/{id}", args: "id", columns: "id pool state action tenant kind group done key_taken left asked_by created_at ended_at"}},
	"operations cancel": {{method: http.MethodPost, path: "/operations/{id}/cancel", args: "id"}},
	"batches list": {{method: http.MethodGet, path: "/batches", query: "tenant pool after limit",
		columns: "id state tenant pool jobs unfinished done dead cancelled unknown on_failure created_at"}},
	"batches show":   {{method: http.MethodGet, path: "/batches/{id}", args: "id"}},
	"batches cancel": {{method: http.MethodPost, path: "/batches/{id}/cancel", args: "id"}},
	"schedules list": {{method: http.MethodGet, path: "/schedules", query: "tenant every-tenant name", columns: "tenant name state rule time_zone kind next last pool origin"}},
	"schedules show": {{method: http.MethodGet, path: "/tenants/{tenant}/schedules/{name}", args: "name", when: "tenant"},
		{method: http.MethodGet, path: "/schedules/{name}", args: "name", when: "every-tenant"}},
	"schedules pause": {{method: http.MethodPost, path: "/tenants/{tenant}/schedules/{name}/pause", args: "name", when: "tenant"},
		{method: http.MethodPost, path: "/schedules/{name}/pause", args: "name", when: "every-tenant"}},
	"schedules resume": {{method: http.MethodPost, path: "/tenants/{tenant}/schedules/{name}/resume", args: "name", when: "tenant"},
		{method: http.MethodPost, path: "/schedules/{name}/resume", args: "name", when: "every-tenant"}},
	"schedules delete": {{method: http.MethodDelete, path: "/tenants/{tenant}/schedules/{name}", args: "name", when: "tenant"},
		{method: http.MethodDelete, path: "/schedules/{name}", args: "name", when: "every-tenant"}},
	"schedules run": {{method: http.MethodPost, path: "/tenants/{tenant}/schedules/{name}/run", args: "name", when: "tenant"}},

	"tenants list":   {{method: http.MethodGet, path: "/tenants", columns: "tenant pool state weight other"}},
	"tenants why":    {{method: http.MethodGet, path: "/tenants/{tenant}/why", args: "tenant", show: showWhy}},
	"tenants freeze": {{method: http.MethodPost, path: "/tenants/{tenant}/freeze", args: "tenant"}},
	"tenants thaw":   {{method: http.MethodPost, path: "/tenants/{tenant}/thaw", args: "tenant"}},
	"tenants limit":  {{method: http.MethodPut, path: "/tenants/{tenant}/limits", args: "tenant", body: "max-running max-waiting"}},
	"tenants weight": {{method: http.MethodPut, path: "/tenants/{tenant}/weight", args: "tenant weight"}},
	"limits list":    {{method: http.MethodGet, path: "/limits", columns: "tenant every_tenant all_tenants queue kind max_running running rate per_ms burst next_start pool"}},
	"limits set":     {{method: http.MethodPut, path: "/limits", body: "tenant every-tenant kind queue key each-key max-running rate per=per_ms burst"}},
	"limits delete":  {{method: http.MethodDelete, path: "/limits", query: "tenant every-tenant kind queue key each-key"}},

	"pools list":    {{method: http.MethodGet, path: "/pools", columns: "pool state holder waiting oldest_seconds running dead"}},
	"pools freeze":  {{method: http.MethodPost, path: "/pools/{pool}/freeze", args: "pool"}},
	"pools thaw":    {{method: http.MethodPost, path: "/pools/{pool}/thaw", args: "pool"}},
	"queues list":   {{method: http.MethodGet, path: "/queues/frozen", columns: "queue pool since"}},
	"queues freeze": {{method: http.MethodPost, path: "/queues/{queue}/freeze", args: "queue"}},
	"queues thaw":   {{method: http.MethodPost, path: "/queues/{queue}/thaw", args: "queue"}},
	"kinds list":    {{method: http.MethodGet, path: "/kinds/frozen", columns: "kind pool since"}},
	"kinds freeze":  {{method: http.MethodPost, path: "/kinds/{kind}/freeze", args: "kind"}},
	"kinds thaw":    {{method: http.MethodPost, path: "/kinds/{kind}/thaw", args: "kind"}},
	"locks":         {{method: http.MethodGet, path: "/locks", columns: "pool node holder epoch since remaining_seconds reserved_for frozen answers"}},
	"locks history": {{method: http.MethodGet, path: "/locks/changes", query: "pool limit", columns: "at pool epoch text"}},
	"nodes":         {{method: http.MethodGet, path: "/nodes", columns: "node pool version state started_at last_seen claims"}},
	"audit":         {{method: http.MethodGet, path: "/audit", query: "who action tenant job pool after limit", columns: "at who action tenant pool job subject detail"}},
	"doctor":        {{method: http.MethodGet, path: "/doctor", show: showExamination}},
}

// conversions are how what is typed becomes a field, where that is another text, by the field's name.
var conversions = map[string]func(a *app, what, text string) (any, error){
	"args": func(a *app, _, text string) (any, error) {
		raw, err := rawArgs(a, "any", text) // the node looks at the kind
		return json.RawMessage(raw.Payload), err
	},
	"meta":   func(_ *app, _, text string) (any, error) { return metaObject(text) },
	"at":     typedTime,
	"due_at": typedTime,
	"until": func(a *app, what, text string) (any, error) {
		t, err := typedTime(a, what, text)
		if err == nil && !t.(time.Time).After(a.now()) {
			err = usagef("%s %s: is in the past", what, text)
		}
		return t, err
	},
	"before":       typedAge,
	"delay_ms":     in(time.Millisecond),
	"timeout_ms":   in(time.Millisecond),
	"per_ms":       in(time.Millisecond),
	"unique_for":   in(time.Second),
	"per_second":   above0,
	"max_attempts": above0,
	"weight": func(_ *app, what, text string) (any, error) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, usagef("%s %q: a whole number is needed, such as 3", what, text)
		}
		return n, nil
	},
}

func typedTime(_ *app, what, text string) (any, error) {
	return parseTime(strings.TrimPrefix(what, "--"), text)
}

// above0 refuses what the API takes for a number that was left out.
func above0(_ *app, what, text string) (any, error) {
	if n, err := strconv.ParseFloat(text, 64); err != nil || !(n > 0) || math.IsInf(n, 1) {
		return nil, usagef("%s %s: must be more than 0", what, text)
	}
	return json.RawMessage(text), nil
}

func typedAge(a *app, what, text string) (any, error) {
	d, err := job.ParseDuration(text)
	if err != nil || d < 0 {
		return nil, usagef("%s %q is not so long ago: write a duration such as 1h or P2D", what, text)
	}
	return a.now().Add(-d), nil
}

// in counts a duration in units that the API has it in. It refuses what those cannot say, and none,
// which the API takes for one that was left out.
func in(unit time.Duration) func(*app, string, string) (any, error) {
	return func(_ *app, what, text string) (any, error) {
		d, err := job.ParseDuration(text)
		switch {
		case err != nil:
			return nil, usagef("%s: %w", what, err)
		case d <= 0 || d%unit != 0:
			return nil, usagef("%s %s: with --server a whole number of %v, and one at least, is needed", what, text, unit)
		}
		return int64(d / unit), nil
	}
}

func showEnqueued(a *app, f format, answer json.RawMessage) error {
	var added struct {
		ID        string
		Duplicate bool
	}
	if err := json.Unmarshal(answer, &added); err != nil {
		return err
	}
	id, err := job.ParseID(added.ID)
	if err != nil {
		return err
	}
	return printEnqueued(a, f, tenure.Enqueued{ID: id, Duplicate: added.Duplicate})
}

func showWhy(a *app, f format, answer json.RawMessage) error {
	if f == asJSON {
		return printJSON(a.stdout, answer)
	}
	var why struct{ Text, Advice string }
	if err := json.Unmarshal(answer, &why); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, clean(why.Text))
	return say(a, clean(why.Advice))
}

func showExamination(a *app, f format, answer json.RawMessage) error {
	var found tenure.Examination
	err := json.Unmarshal(answer, &found)
	if err == nil && f == asJSON {
		err = printJSON(a.stdout, answer)
	} else if err == nil {
		err = printFindings(a.stdout, found)
	}
	if err == nil && !found.Healthy() {
		err = errUnhealthy
	}
	return err
}
