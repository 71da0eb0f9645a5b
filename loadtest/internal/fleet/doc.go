// Package fleet runs nodes as processes of their own, which can be killed, frozen, cut off
// from one another and started again. What such a process does is here, too: [RunNode], the
// jobs it runs, and the questions it answers over its standard input.
package fleet
