package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/operate"
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

// jsonVersion is what this program is, as -o json prints it.
type jsonVersion struct {
	Version       string `json:"version"`
	Go            string `json:"go"`
	Platform      string `json:"platform"`
	LedgerVersion int64  `json:"ledger_version"`
}

func readVersion() jsonVersion {
	return jsonVersion{buildVersion(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, operate.LedgerVersion()}
}

func (v jsonVersion) String() string {
	return fmt.Sprintf("tenure %s %s %s\nledger version %d; also works on newer ledgers that admit programs for version %[4]d",
		v.Version, v.Go, v.Platform, v.LedgerVersion)
}

func newVersion(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version and the ledger version it works with",
		Args:  cobra.NoArgs,
	}
	output := outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if *output == asJSON {
			return printJSON(a.stdout, readVersion())
		}
		_, err := fmt.Fprintln(a.stdout, readVersion())
		return err
	}
	return cmd
}
