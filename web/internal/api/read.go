package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/tenurehq/tenure/web/internal/wire"
)

// readExactly has bodies read as [wire.Unmarshal] does.
func readExactly(config *huma.Config) {
	config.Formats = maps.Clone(config.Formats)
	for name, format := range config.Formats {
		format.Unmarshal = func(data []byte, into any) error {
			if _, whole := into.(*any); whole { // to be compared with the document; then it is read as what it is
				return json.Unmarshal(data, into)
			}
			return wire.Unmarshal(data, into, wire.NullsRefused)
		}
		config.Formats[name] = format
	}
}

// requireExact refuses a path, parameters or headers that could be taken for others.
func requireExact(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, _ := humago.Unwrap(ctx)
		if faults := faultsOf(r, ctx.Operation().Parameters); len(faults) > 0 {
			_ = huma.WriteErr(api, ctx, http.StatusUnprocessableEntity, "validation failed", faults...) // the caller has gone if this fails
			return
		}
		next(ctx)
	}
}

func faultsOf(r *http.Request, known []*huma.Param) (faults []error) {
	if err := wire.CheckRequest(r); err != nil {
		return []error{err}
	}
	query := r.URL.Query()
	for _, p := range known {
		values := query[p.Name]
		switch p.In {
		case "header":
			values = r.Header.Values(p.Name)
		case "query":
		default:
			continue
		}
		if isPlace(p.Name) {
			values = slices.DeleteFunc(slices.Clone(values), func(value string) bool { return value == "" })
		}
		if err := checkValues(values, p.Explode != nil && *p.Explode); err != nil {
			faults = append(faults, &huma.ErrorDetail{Message: err.Error(), Location: p.In + "." + p.Name, Value: strings.Join(values, ", ")})
		}
	}
	return faults
}

// isPlace says whether a parameter says from where on somebody wants to go on: none is the beginning.
func isPlace(name string) bool { return name == "after" || name == "known" || name == "Last-Event-ID" }

// checkValues refuses values of a parameter that are not one, unless it has many, or that say nothing.
func checkValues(values []string, many bool) error {
	if len(values) > 1 && !many {
		return fmt.Errorf("it is there %d times", len(values))
	}
	for _, value := range values {
		if value == "" {
			return errors.New("it is empty: leave it out, or give it a value")
		}
		if err := wire.CheckText(value); err != nil {
			return err
		}
	}
	return nil
}

// maxDetails is how many things that are wrong an answer names.
const maxDetails = 20

// brief has an answer repeat but little of what was sent.
func brief(_ huma.Context, _ string, answer any) (any, error) {
	problem, is := answer.(*huma.ErrorModel)
	if !is {
		return answer, nil
	}
	short := *problem
	if len(problem.Errors) > 0 {
		short.Detail += ": " + problem.Errors[0].Location + ": " + problem.Errors[0].Message
	}
	short.Detail, short.Errors = wire.Brief(short.Detail), nil
	for _, e := range problem.Errors[:min(len(problem.Errors), maxDetails)] {
		one := huma.ErrorDetail{Message: wire.Brief(e.Message), Location: wire.Brief(e.Location), Value: e.Value}
		if text, err := json.Marshal(one.Value); err != nil || len(text) > wire.MaxQuote {
			one.Value = wire.Brief(string(text))
		}
		short.Errors = append(short.Errors, &one)
	}
	return &short, nil
}
