package config

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "P6", Name: "a password may stand below any key",
		File: "config/shape.go", Func: "misused",
		Old:  "maskText(text, nil) != text:",
		New:  "text == mask:",
		Test: "TestMisplacedPasswordsNeverLeak",
	},
	{
		Promise: "secrets", Name: "a password that looks like a variable is printed",
		File: "config/shape.go", Func: "misused",
		Old:  `case m != nil && inPassword(source, "$"+m[1]):`,
		New:  "case false:",
		Test: "TestTraps",
	},
	{
		Promise: "config", Name: "a brace without its end is no placeholder",
		File: "routing/config.go", Func: "",
		Old:  "`\\{[^{}]*\\}?|\\}`",
		New:  "`\\{[^{}]*\\}`",
		Test: "TestTraps",
	},
}
