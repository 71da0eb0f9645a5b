package report

import (
	"encoding/json"
	"fmt"
)

// Result is what a scenario measured.
type Result interface {
	// Fault is an error if something happened that never may.
	Fault() error
}

// Outcome is what became of the jobs that are known to exist.
type Outcome struct {
	Enqueued int `json:"enqueued"`
	Finished int `json:"finished"`
	Lost     int `json:"lost"`    // neither finished nor in any other table
	Doubled  int `json:"doubled"` // effects beyond the first of each job
}

// Fault implements Result.
func (o Outcome) Fault() error { return Lost(int64(o.Lost), o.Doubled) }

// Lost is an error unless both numbers are 0.
func Lost(lost int64, doubled int) error {
	if lost == 0 && doubled == 0 {
		return nil
	}
	return fmt.Errorf("%d jobs were lost, and %d ran or took effect twice", lost, doubled)
}

// Print prints a result: as one JSON object, or as lines.
func Print(result any, asJSON bool) error {
	b, err := json.Marshal(result)
	if err != nil {
		return err
	}
	if asJSON {
		fmt.Println(string(b))
		return nil
	}
	var fields map[string]any
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	pretty, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		return err
	}
	fmt.Println(string(pretty))
	return nil
}
