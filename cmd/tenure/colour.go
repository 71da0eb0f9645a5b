package main

import (
	"io"
	"os"

	"github.com/tenurehq/tenure/cmd/tenure/internal/demo"
)

// colour is what a terminal is told to write in.
type colour string

const (
	red    colour = "31"
	yellow colour = "33"
	blue   colour = "34"
	bold   colour = "1"
)

// colours are how bad things are.
var colours = map[string]colour{"error": red, "warning": yellow, "note": blue}

// paint writes text in a colour, if out is a terminal and NO_COLOR is not set.
func paint(out io.Writer, c colour, text string) string {
	if c == "" || os.Getenv("NO_COLOR") != "" || !demo.IsTerminal(out) {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
