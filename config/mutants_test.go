package config

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "P6", Name: "a password may stand below any key",
		File: "config/shape.go", Func: "misused",
		Old:  "hasPassword(text):",
		New:  "text == mask:",
		Test: "TestSecretsAreNotTold",
	},
}
