package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/tenurehq/tenure/job"
)

// Journal is what the handlers of one process did. Each line is one write to a file
// opened for appending, so what is in it survives a SIGKILL.
type Journal struct {
	file   *os.File // nil: nothing is written down
	member atomic.Pointer[string]
}

// Line is one thing that a handler did.
type Line struct {
	At     time.Time `json:"at"`
	Member string    `json:"member"`
	What   string    `json:"what"` // start, end, or fail with the reason
	Job    job.ID    `json:"job"`
	Turn   int32     `json:"turn"`
	Kind   string    `json:"kind"`
	Why    string    `json:"why,omitempty"`
}

func OpenJournal(path string) (*Journal, error) {
	j := &Journal{}
	if path == "" {
		return j, nil
	}
	var err error
	j.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return j, err
}

// SetMember says which process of a node writes.
func (j *Journal) SetMember(name string) { j.member.Store(&name) }

// Self is that process; nil: it is not known yet.
func (j *Journal) Self() *string { return j.member.Load() }

func (j *Journal) note(what string, r *job.Record, why error) error {
	if j.file == nil {
		return nil
	}
	l := Line{At: time.Now(), What: what, Job: r.ID, Turn: r.Turn, Kind: r.Kind}
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

// ReadJournals reads every journal of a folder. A last line that a kill cut short is
// left out.
func ReadJournals(dir string) ([]Line, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil {
		return nil, err
	}
	var all []Line
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(text) {
			var l Line
			if json.Unmarshal(line, &l) == nil {
				all = append(all, l)
			}
		}
	}
	return all, nil
}

// Around writes down the start before anything else is done, and the end.
func (j *Journal) Around(r *job.Record, work func() error) error {
	if err := j.note("start", r, nil); err != nil {
		return err
	}
	if err := work(); err != nil {
		_ = j.note("fail", r, err) // the handler's own error says more
		return err
	}
	return j.note("end", r, nil)
}
