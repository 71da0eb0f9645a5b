package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// answer is what the API has answered to a command, about one of its arguments if it has any.
type answer struct {
	*question
	looks  bool // the command only looks, so that what is missing makes it fail
	arg    string
	body   json.RawMessage // nil: it is done, and there is nothing to say
	server *server
}

// readInto reads the answer into something.
func (r *answer) readInto(into any) error { return readAnswer(r.body, into) }

// print prints the answer, and returns what it lacks.
func (r *answer) print() error {
	asked := r.format() == asJSON
	var err error
	switch {
	case r.said != nil && !asked:
		err = say(r.a, cleanLines(r.said(r)))
	case r.body == nil:
		if !asked {
			err = say(r.a, clean(r.arg+": done"))
		}
	case r.show != nil:
		err = r.show(r)
	case asked:
		err = printJSON(r.a.stdout, r.body)
	default:
		err = r.printTable()
	}
	return errors.Join(err, r.lacks())
}

var errIncomplete = errors.New("the output is incomplete; run this again once these pools answer")

// lacks says what an answer lacks.
func (r *answer) lacks() error {
	var said struct {
		page
		Complete *bool
		Now      *struct{ Complete bool }
	}
	_ = json.Unmarshal(r.body, &said)                            // it says nothing of the kind then
	if said.Next != "" && r.columns != "" && said.Items != nil { // schedules have one, too
		fmt.Fprintf(r.a.stderr, "tenure: there are more: go on with --after %s, or see --limit\n", oneLine(said.Next))
	}
	failed := errors.Join(r.server.failed...)
	isList := r.looks && said.Items != nil
	if r.server.here != nil {
		if isList {
			failed = errors.Join(r.server.here.unsaid(failed), failed)
		}
		if isList && failed != nil {
			failed = errors.Join(failed, errIncomplete)
		}
		return failed
	}
	if said.Now != nil {
		said.Complete = &said.Now.Complete
	}
	var errs []error
	for _, m := range said.Missing {
		errs = append(errs, fmt.Errorf("pool %s is %s", m.Pool, m.State))
	}
	for _, item := range said.Items {
		var lock struct { // whose list has all pools
			Pool    string
			Answers *bool
		}
		if json.Unmarshal(item, &lock) == nil && lock.Answers != nil && !*lock.Answers {
			errs = append(errs, fmt.Errorf("pool %s does not answer", lock.Pool))
		}
	}
	switch {
	case said.Incomplete && len(errs) == 0:
		errs = append(errs, errors.New("the output is incomplete, as some pools did not answer in time; run this again once they do"))
	case len(errs) > 0:
		errs = append(errs, errIncomplete)
	case said.Complete != nil && !*said.Complete:
		errs = append(errs, errors.New("there are more, as time was up or a pool did not answer; run this again"))
	}
	return errors.Join(errs...)
}

// member is a field of a JSON object, in the place that it has there.
type member struct {
	name  string
	value json.RawMessage
}

func membersOf(object json.RawMessage) (all []member, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf("the answer is no JSON object: %s", cut(string(object), maxDetail))
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("read the answer: %w", err)
		}
		m := member{name: name.(string)}
		if err := d.Decode(&m.value); err != nil {
			return nil, fmt.Errorf("read the answer: %w", err)
		}
		all = append(all, m)
	}
	return all, nil
}

// maxDetail keeps an error in its row.
const maxDetail = 60

// column is one of a table.
type column struct{ head, field string }

// columnsOf reads which columns a table has.
func columnsOf(list string) (all []column) {
	for _, word := range strings.Fields(list) {
		head, field, named := strings.Cut(word, "=")
		if !named {
			field = head
		}
		all = append(all, column{head, field})
	}
	return all
}

func (c column) title() string { return strings.ReplaceAll(c.head, "_", " ") }

// printTable prints a list as a table, and one thing by name and value.
func (r *answer) printTable() error {
	members, err := membersOf(r.body)
	if err != nil {
		return err
	}
	columns := columnsOf(r.columns)
	i := slices.IndexFunc(members, func(m member) bool { return m.name == "items" })
	if i < 0 {
		return r.printFields(columns, members)
	}
	var items []json.RawMessage
	if err := readAnswer(members[i].value, &items); err != nil {
		return err
	}
	var head []string
	for _, c := range columns {
		head = append(head, strings.ToUpper(c.title()))
	}
	var rows [][]string
	for _, item := range items {
		row, err := r.cellsOf(columns, item)
		if err != nil {
			return err
		}
		for i := range row {
			if r.cells[columns[i].head] == nil {
				row[i] = cut(row[i], maxDetail)
			}
		}
		rows = append(rows, row)
	}
	return printTable(r.a.stdout, head, rows)
}

// cellsOf are what stands in columns of an item.
func (r *answer) cellsOf(columns []column, item json.RawMessage) ([]string, error) {
	members, err := membersOf(item)
	row := make([]string, len(columns))
	for i, c := range columns {
		if show := r.cells[c.head]; show != nil {
			row[i] = show(r.a, item)
			continue
		}
		for _, m := range members {
			if m.name == c.field {
				row[i] = cellOf(r.a, m.value)
			}
		}
	}
	return row, err
}

// printFields prints one thing; without columns, all that there is of it.
func (r *answer) printFields(columns []column, members []member) error {
	for _, m := range members {
		if r.columns == "" {
			columns = append(columns, column{m.name, m.name})
		}
	}
	row, err := r.cellsOf(columns, r.body)
	if err != nil || len(columns) == 0 {
		return err
	}
	var rows [][]string
	for i, c := range columns {
		if row[i] != "" || i == 0 {
			rows = append(rows, []string{c.title(), row[i]})
		}
	}
	return printTable(r.a.stdout, rows[0], rows[1:])
}

// cellOf is a value for people.
func cellOf(a *app, value json.RawMessage) string {
	var v any
	if json.Unmarshal(value, &v) != nil || v == nil {
		return ""
	}
	if text, ok := v.(string); ok {
		if t, err := time.Parse(time.RFC3339, text); err == nil {
			return a.now.stamp(t)
		}
		return oneLine(text)
	}
	var texts []string
	if json.Unmarshal(value, &texts) == nil {
		return strings.Join(texts, ", ")
	}
	return string(value) // as it came: large numbers keep their digits
}

// of makes a cell of what an item has, read as a T.
func of[T any](show func(*app, *T) string) cell {
	return func(a *app, item json.RawMessage) string {
		var one T
		if json.Unmarshal(item, &one) != nil {
			return ""
		}
		return show(a, &one)
	}
}

// when is how far away a time of an item is; "": it has none.
func when(field string) cell {
	return func(a *app, item json.RawMessage) string {
		var all map[string]json.RawMessage
		var at time.Time
		if json.Unmarshal(item, &all) != nil || json.Unmarshal(all[field], &at) != nil || at.IsZero() {
			return ""
		}
		return a.now.relative(at)
	}
}

// done says of each argument what was done to it: text has %s for it.
func done(noun, text string) func(*answer) string {
	return func(r *answer) string {
		if strings.Contains(text, "%s") {
			return fmt.Sprintf("%s %s "+text, noun, r.arg, r.arg)
		}
		return noun + " " + r.arg + " " + text
	}
}

// withID are the forms of a request about a job.
func withID(method, path string) []form { return []form{{method: method, path: path, args: "id"}} }

// list are the forms of a command that lists something by what all its flags choose.
func list(path string) []form { return []form{{method: http.MethodGet, path: path, flags: "*"}} }
