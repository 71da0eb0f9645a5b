package execution

import (
	"bytes"
	"runtime"
	"strconv"

	"github.com/tenurehq/tenure/job"
)

// mostStacks is how many bytes of stacks of all goroutines are taken at most.
const mostStacks = 16 << 20

// goroutineOf is the goroutine that runs a job in s.
func (s *slot) goroutineOf(id job.ID) (goroutine string, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claim == nil {
		return "", false
	}
	for c := range s.claim.call() {
		if c.Record.ID == id {
			return s.goroutine, true
		}
	}
	return "", false
}

// noteGoroutine notes which goroutine works in s: the one that calls it.
func (s *slot) noteGoroutine() {
	head := make([]byte, 64)
	head = head[:runtime.Stack(head, false)] // goroutine 7 [running]: …
	if field := bytes.Fields(head); len(field) > 1 {
		if _, err := strconv.Atoi(string(field[1])); err == nil {
			s.mu.Lock()
			s.goroutine = string(field[1])
			s.mu.Unlock()
		}
	}
}

// stackOf is the stack of a goroutine and of those that it has begun; "": it cannot be found.
func stackOf(goroutine string) string {
	if goroutine == "" {
		return ""
	}
	all := make([]byte, 1<<20)
	for n := runtime.Stack(all, true); n == len(all) && n < mostStacks; n = runtime.Stack(all, true) {
		all = make([]byte, 2*len(all))
	}
	all = bytes.TrimRight(all, "\x00")
	var out [][]byte
	for one := range bytes.SplitSeq(all, []byte("\n\n")) {
		if bytes.HasPrefix(one, []byte("goroutine "+goroutine+" ")) || bytes.Contains(append(one, '\n'), []byte(" in goroutine "+goroutine+"\n")) {
			out = append(out, one)
		}
	}
	return string(bytes.Join(out, []byte("\n\n")))
}
