package handlers

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "P6", Name: "a webhook reaches what a cloud serves at a public address",
		File: "cmd/tenure/internal/handlers/guard.go",
		Old:  `"168.63.129.16/32"`,
		New:  `"168.63.129.17/32"`,
		Test: "TestGuard",
	},
	{
		Promise: "P6", Name: "jobs show prints the headers of webhooks",
		File: "cmd/tenure/internal/handlers/redact.go", Func: "Redact",
		Old: `case "headers":
	value = hideAll(value)`,
		New:  "",
		Test: "TestRedact",
	},
}
