// Command program is [release.Run] as a process: program ROLE CONFIG NAME.
package main

import (
	"fmt"
	"os"

	"github.com/tenurehq/tenure/internal/release"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: program migrate|node|client CONFIG NAME")
		os.Exit(2)
	}
	if err := release.Run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[3], err)
		os.Exit(1)
	}
}
