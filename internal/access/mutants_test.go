package access

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "P6", Name: "a web page reads what a node says by a name of its own",
		File: "internal/access/hosts.go", Func: "isKnownHost",
		Old:  `err == nil || host == "localhost" {`,
		New:  `err == nil || host != "" {`,
		Test: "TestForHosts",
	},
}
