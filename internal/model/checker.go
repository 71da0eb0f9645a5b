package model

import (
	"fmt"
	"hash/maphash"
	"strings"
	"time"
)

// System is what a check explores: states of type S, and steps of type T between
// them. Its methods must depend on nothing but their arguments.
type System[S comparable, T any] interface {
	// Start is the state in which every history begins.
	Start() S
	// Next yields every step that is possible in s with the state it leads to. What
	// next points to belongs to the caller only until yield returns.
	Next(s *S, yield func(step T, next *S))
	// Broken names the invariant that s breaks, and how; "" when all of them hold.
	Broken(s *S) string
	// Canonical picks one of the states that differ from s by the names of their
	// nodes only, so that not each of them is explored.
	Canonical(s *S) S
	// Tell says for a reader what a step was and what it led to.
	Tell(step T, next *S) string
}

// Report is what a check found.
type Report struct {
	States  int // distinct ones
	Steps   int // between them
	Depth   int // of the longest among the shortest histories
	Elapsed time.Duration
	Partial bool // it gave up at the limit before it had seen everything

	Broken string   // the invariant that does not hold, and how; "" when all do
	Trace  []string // one of the shortest histories that break it
}

// String is the report for a log.
func (r Report) String() string {
	s := fmt.Sprintf("%d states, %d steps, depth %d, %.1f s", r.States, r.Steps, r.Depth, r.Elapsed.Seconds())
	if r.Partial {
		s += " (not exhausted)"
	}
	if r.Broken != "" {
		s += "\n" + r.Timeline()
	}
	return s
}

// Timeline is the counterexample, one step a line.
func (r Report) Timeline() string {
	var b strings.Builder
	fmt.Fprintf(&b, "BROKEN: %s\n", r.Broken)
	for i, line := range r.Trace {
		fmt.Fprintf(&b, "%3d  %s\n", i+1, line)
	}
	return b.String()
}

// Check explores sys breadth first until it has seen every state, one breaks an
// invariant, or more than limit of them are known. Because it goes by breadth, the
// history it reports is a shortest one.
//
// Of a state that has been expanded only its hash, of 64 bits, and the number of its
// parent are kept: 50 bytes or so. Two of ten million states share a hash with
// probability 3e-6; one of them is then not explored.
func Check[S comparable, T any](sys System[S, T], limit int) Report {
	began := time.Now()
	c := &search[S, T]{sys: sys, seed: maphash.MakeSeed(), seen: &seen{numbers: map[uint64]uint32{}}}
	r := Report{Broken: c.run(limit)}
	if r.Broken != "" {
		r.Trace = c.trace(c.broken)
	}
	r.States, r.Steps, r.Depth, r.Partial = c.seen.size(), c.steps, max(c.depth, len(r.Trace)), c.partial
	r.Elapsed = time.Since(began)
	return r
}

type search[S comparable, T any] struct {
	sys     System[S, T]
	seed    maphash.Seed
	seen    *seen
	steps   int
	depth   int
	partial bool
	broken  uint32 // the state that breaks an invariant
}

// run returns the invariant that is broken.
func (c *search[S, T]) run(limit int) (broken string) {
	var frontier queue[S] // in the order of the states' numbers
	visit := func(s *S, parent uint32) {
		canonical := c.sys.Canonical(s)
		number, fresh := c.seen.add(c.hash(&canonical), parent)
		if !fresh || broken != "" {
			return
		}
		if broken = c.sys.Broken(&canonical); broken != "" {
			c.broken = number
		}
		frontier.push(&canonical)
	}
	start := c.sys.Start()
	visit(&start, 0)
	number := uint32(0) // of the state that is expanded
	below := 1          // the number of the first state of the next level
	for s := frontier.pop(); s != nil && broken == ""; s = frontier.pop() {
		if c.seen.size() > limit {
			c.partial = true
			return ""
		}
		if int(number) == below {
			c.depth++
			below = c.seen.size()
		}
		c.sys.Next(s, func(_ T, next *S) {
			c.steps++
			visit(next, number)
		})
		number++
	}
	return broken
}

// queue is first in, first out, and keeps little more than what is in it.
type queue[S any] struct {
	chunks [][]S // the first one is being read, the last one written
	read   int   // of the first one
	spare  []S
}

const chunkSize = 1024

func (q *queue[S]) push(s *S) {
	if n := len(q.chunks); n == 0 || len(q.chunks[n-1]) == chunkSize {
		if q.spare == nil {
			q.spare = make([]S, 0, chunkSize)
		}
		q.chunks = append(q.chunks, q.spare[:0])
		q.spare = nil
	}
	last := &q.chunks[len(q.chunks)-1]
	*last = append(*last, *s)
}

// pop returns what stays valid until the next call; nil: nothing is left.
func (q *queue[S]) pop() *S {
	if q.read == chunkSize {
		q.spare, q.chunks, q.read = q.chunks[0], q.chunks[1:], 0
	}
	if len(q.chunks) == 0 || q.read == len(q.chunks[0]) {
		return nil
	}
	q.read++
	return &q.chunks[0][q.read-1]
}

func (c *search[S, T]) hash(s *S) uint64 { return maphash.Comparable(c.seed, *s) }

// trace goes from the start to the state with a number, along the parents, and
// tells the steps. It follows states as the system made them, not their canonical
// forms, so that a node keeps its name from the first line to the last.
func (c *search[S, T]) trace(number uint32) []string {
	var path []uint64 // hashes, the last one first
	for n := number; n != 0; n = c.seen.parents[n] {
		path = append(path, c.seen.hashes[n])
	}
	var lines []string
	at := c.sys.Start()
	for i := len(path) - 1; i >= 0; i-- {
		found := false
		var then S
		c.sys.Next(&at, func(step T, next *S) {
			if found {
				return
			}
			if canonical := c.sys.Canonical(next); c.hash(&canonical) == path[i] {
				found, then = true, *next
				lines = append(lines, c.sys.Tell(step, next))
			}
		})
		if !found { // only if Next is not a function of the state
			return append(lines, "(the rest could not be followed)")
		}
		at = then
	}
	return lines
}

// seen is the set of known states, by hash. Each has a number, from 0 in the order
// of adding.
type seen struct {
	numbers map[uint64]uint32 // by hash
	hashes  []uint64          // by number
	parents []uint32          // by number; of the start: itself
}

func (s *seen) size() int { return len(s.hashes) }

// add returns the number of a state, and whether it was not known.
func (s *seen) add(hash uint64, parent uint32) (number uint32, fresh bool) {
	number, known := s.numbers[hash]
	if !known {
		number = uint32(len(s.hashes))
		s.numbers[hash] = number
		s.hashes, s.parents = append(s.hashes, hash), append(s.parents, parent)
	}
	return number, !known
}
