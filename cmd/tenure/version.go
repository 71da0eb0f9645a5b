package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
)

// version is set by the linker in releases.
var version string

// buildVersion is the release, or what the Go command knew when it built this.
func buildVersion() string {
	known := ""
	if b, ok := debug.ReadBuildInfo(); ok {
		known = b.Main.Version
	}
	return cmp.Or(version, known, "(devel)")
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and the ledger version it works with",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.stdout, "tenure %s %s %s/%s\nledger version %d; also works on newer ledgers that admit programs for version %[5]d\n",
				buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH, tenure.LedgerVersion())
			return err
		},
	}
}
