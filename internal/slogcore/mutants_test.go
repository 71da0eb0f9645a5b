package slogcore_test

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "slog", Name: "a warning is an error in log/slog",
		File: "internal/slogcore/core.go", Func: "levelOf",
		Old:  "return slog.LevelWarn",
		New:  "return slog.LevelError",
		Test: "TestWhatIsLoggedArrives",
	},
	{
		Promise: "slog", Name: "log/slog loses what a logger was given once",
		File: "internal/slogcore/core.go", Func: "(core).With",
		Old:  "return core{c.handler.WithAttrs(attrsOf(fields))}",
		New:  "return c",
		Test: "TestAttributesOfALoggerAreKept",
	},
}
