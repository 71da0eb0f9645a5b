package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/fault"
	"github.com/tenurehq/tenure/job"
)

// Register adds the daemon's handlers to a registry, as configured. What is returned closes
// the connections that no request uses; for after the node's stop.
func Register(r *job.Registry, cfg config.Handlers) (closeIdle func()) {
	c := newCaller(cfg.HTTPRequest.Allow)
	job.Handle(r, c.handle)
	if cfg.SQLExec.Enabled {
		tenure.HandleTx(r, execSQL)
	}
	return c.client.CloseIdleConnections
}

// readArguments reads a kind's arguments into a struct. An argument that nobody reads would be a request without its body, or
// a statement without its values: it is refused. An error says what is wrong in words of JSON.
func readArguments(kind string, text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // an id above 2^53 would not survive as a float64
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var wrong *json.UnmarshalTypeError
	const unknown = "json: unknown field "
	switch {
	case err == nil:
		return nil
	case strings.HasPrefix(err.Error(), unknown):
		name, _ := strconv.Unquote(err.Error()[len(unknown):])
		known := argumentsOf(reflect.TypeOf(into).Elem())
		fix := fault.DidYouMean(name, known)
		if fix == "" {
			fix = "they are " + strings.Join(known, ", ")
		}
		err = fmt.Errorf("there is no %q: %s", name, fix)
	case errors.As(err, &wrong) && wrong.Field == "":
		err = errors.New("they are no JSON object")
	case errors.As(err, &wrong):
		err = fmt.Errorf("%s cannot be a JSON %s", wrong.Field, wrong.Value)
	}
	return fmt.Errorf("the arguments of %s: %w", kind, err)
}

// argumentsOf are the names of the arguments that a struct is read from.
func argumentsOf(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}
