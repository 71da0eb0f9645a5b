package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)

// rawArgs checks what no database is needed for.
func rawArgs(a *app, kind, text string) (tenure.RawArgs, error) {
	payload := []byte(text)
	if text == "-" {
		var err error
		if payload, err = io.ReadAll(io.LimitReader(a.stdin, job.MaxPayload+1)); err != nil {
			return tenure.RawArgs{}, fmt.Errorf("read the arguments from standard input: %w", err)
		}
	}
	if err := job.ValidateKind("kind", kind); err != nil {
		return tenure.RawArgs{}, &usageError{err}
	}
	if err := job.CheckPayload(payload); err != nil {
		return tenure.RawArgs{}, usagef("the arguments: %w", err)
	}
	return tenure.RawArgs{Name: kind, Payload: payload}, nil
}

// metaObject reads what --meta says.
func metaObject(text string) (meta map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber() // or a large number would lose digits
	if err := d.Decode(&meta); err != nil || meta == nil || d.More() {
		return nil, usagef("--meta: %q is not a JSON object", cut(text, 64))
	}
	return meta, nil
}

// parseTime reads the time that a flag gives.
func parseTime(flag, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usagef("--%s: %q is not a time: write one such as 2027-01-31T09:00:00Z or 2027-01-31T09:00:00+01:00", flag, text)
	}
	return t, nil
}
