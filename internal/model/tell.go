package model

import (
	"fmt"
	"strings"
)

// Tell implements System.
func (p *Protocol) Tell(step Step, next *State) string {
	var b strings.Builder
	switch {
	case step.node >= 0:
		fmt.Fprintf(&b, "node %c ", 'A'+step.node)
	case step.request.kind != free:
		b.WriteString("database ")
	}
	b.WriteString(step.what)
	if step.job >= 0 {
		fmt.Fprintf(&b, " %s", jobName(step.job))
	}
	if step.request.kind != free {
		b.WriteString(" " + step.request.String())
	}
	return fmt.Sprintf("%-80s | %s", b.String(), &next.ledger)
}

func jobName(j int) string { return [...]string{"job X", "job Y"}[j] }

func (s session) String() string {
	if s == 0 {
		return "nobody"
	}
	return fmt.Sprintf("%c%d", 'A'+s.node(), s.life()+1)
}

func (s set) jobs() string {
	return [...]string{"nothing", "X", "Y", "X and Y"}[s]
}

// String tells a request.
func (r request) String() string {
	what := [...]string{take: "take", sweep: "sweep", claim: "claim", declare: "declaration", reap: "reaping", write: "write", commit: "commit"}[r.kind]
	s := fmt.Sprintf("%v's %s", r.from, what)
	switch r.kind {
	case claim:
		s += fmt.Sprintf(" of %s, turn %d, epoch %d", r.jobs.jobs(), r.turn, r.epoch)
	case declare:
		s += fmt.Sprintf(" that %v is dead", r.target)
	case commit:
		s += " of " + r.jobs.jobs()
	case write:
		for j, run := range r.runs {
			if run.stage != none {
				s += fmt.Sprintf(" %s %s at turn %d", [...]string{"X", "Y"}[j], [...]string{unstarted: "unstarted", succeeded: "done", committed: "committed", errored: "failed"}[run.stage], run.turn)
			}
		}
	}
	if r.abandoned {
		s += " (given up)"
	}
	return s
}

// String tells what the ledger holds.
func (l *ledger) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock %v epoch %d", l.lock.holder, l.lock.epoch)
	if l.lock.expired {
		b.WriteString(" expired")
	}
	for j, job := range l.jobs {
		fmt.Fprintf(&b, "; %s %s", [...]string{"X", "Y"}[j], [...]string{"turn", "finished", "dead", "removed", "absent"}[job.state])
		if job.state == waiting {
			fmt.Fprintf(&b, " %d", job.turn)
		}
	}
	for id, c := range l.claims {
		if c.session != 0 {
			fmt.Fprintf(&b, "; claim %d: %v has %s turn %d", id+1, c.session, c.jobs.jobs(), c.turn)
		}
	}
	for i, row := range l.sessions {
		switch {
		case row.state == declaredDead:
			fmt.Fprintf(&b, "; %v dead", session(i+1))
		case row.state == live && row.expired:
			fmt.Fprintf(&b, "; %v expired", session(i+1))
		}
	}
	return b.String()
}
