package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// maxLimit bounds lists: all rows are held in memory, here and in the pools.
const maxLimit = 10_000

func checkLimit(limit int) error {
	if limit < 1 || limit > maxLimit {
		return usagef("--limit %d: 1 to %d are allowed", limit, maxLimit)
	}
	return nil
}

// pageFlags adds --limit and --after to a command that lists things in pages.
func pageFlags(cmd *cobra.Command, noun string, limit *int, after *string) {
	cmd.Flags().IntVar(limit, "limit", 100, "at most this many "+noun)
	cmd.Flags().StringVar(after, "after", "", "go on behind this `place`, which a list that has more prints")
}

// sayMore says how to see more than a page that is full.
func sayMore[T interface{ Cursor() string }](a *app, limit int, page []T) {
	if len(page) == limit {
		fmt.Fprintf(a.stderr, "tenure: there may be more than these %d: go on with --after %s, or see --limit\n", limit, page[limit-1].Cursor())
	}
}
