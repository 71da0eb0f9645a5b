package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/tenurehq/tenure/job"
)

// journal is what the handlers of one process did. Each line is one write to a file
// opened for appending, so what is in it survives a SIGKILL.
type journal struct {
	file   *os.File // nil: nothing is written down
	member atomic.Pointer[string]
}

// line is one thing that a handler did.
type line struct {
	At     time.Time `json:"at"`
	Member string    `json:"member"`
	What   string    `json:"what"` // start, end, or fail with the reason
	Job    job.ID    `json:"job"`
	Turn   int32     `json:"turn"`
	Kind   string    `json:"kind"`
	Why    string    `json:"why,omitempty"`
}

func openJournal(path string) (*journal, error) {
	j := &journal{}
	if path == "" {
		return j, nil
	}
	var err error
	j.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return j, err
}

func (j *journal) note(what string, r *job.Record, why error) error {
	if j.file == nil {
		return nil
	}
	l := line{At: time.Now(), What: what, Job: r.ID, Turn: r.Turn, Kind: r.Kind}
	if m := j.member.Load(); m != nil {
		l.Member = *m
	}
	if why != nil {
		l.Why = why.Error()
	}
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = j.file.Write(append(b, '\n'))
	return err
}

// readJournals reads every journal of a folder. A last line that a kill cut short is
// left out.
func readJournals(dir string) ([]line, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil {
		return nil, err
	}
	var all []line
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			var l line
			if json.Unmarshal(lines.Bytes(), &l) == nil {
				all = append(all, l)
			}
		}
		if err := errors.Join(lines.Err(), f.Close()); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
	}
	return all, nil
}
