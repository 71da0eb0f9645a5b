package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tenurehq/tenure/internal/traffic"
)

// invoiceShare is one invoice among so many jobs.
const invoiceShare = 5

// longest is what the slowest call is scaled down to. Calls hold their tenant's
// transaction open, so that what a killed node had half done is seen to be undone.
const longest = 1500 * time.Millisecond

// generatedSeed makes the generated traffic the same each time.
const generatedSeed = 2021

// loadTraffic returns the calls to replay, fitted to the demo, and says where they
// come from.
func loadTraffic(o options) (calls []traffic.Call, source string, err error) {
	n := o.jobs - o.jobs/invoiceShare
	if o.traffic == "" {
		return traffic.Fit(traffic.Generate(generatedSeed, n, o.tenants), n, o.over, longest), "generated, and invoices", nil
	}
	recorded := readAll(o.traffic)
	if len(recorded) == 0 {
		return nil, "", fmt.Errorf("--traffic %s: there is no recording in this folder; leave it out, and traffic is generated", o.traffic)
	}
	return traffic.Fit(recorded, n, o.over, longest),
		fmt.Sprintf("Azure Functions and LLM inference traces (Microsoft, CC BY 4.0) from %s, and invoices", o.traffic), nil
}

// readAll merges the recordings of a folder; files that are none are passed over.
func readAll(dir string) []traffic.Call {
	files, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	if err != nil || len(files) == 0 {
		return nil
	}
	var all []traffic.Call
	for _, f := range files {
		calls, err := traffic.Read(f)
		if err != nil {
			fmt.Fprintln(os.Stderr, "demo: not a recording:", strings.TrimSpace(err.Error()))
			continue
		}
		all = traffic.Merge(all, calls)
	}
	return all
}
