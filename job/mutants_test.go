package job_test

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "P10", Name: "a job that fails without a delay comes back at once",
		File: "job/outcome.go", Func: "Decide",
		Old:  "max(delay, MinDelay)",
		New:  "delay",
		Test: "TestDecide_waitsASecondAtLeast",
	},
	{
		Promise: "P10", Name: "a payload may unfold",
		File: "job/registry.go", Func: "checkContent",
		Old:  "if printed > MaxPrinted {",
		New:  "if false {",
		Test: "TestCheckPayload_acceptsWhatPostgresStores",
	},
	{
		Promise: "P1", Name: "a batch whose handler panicked through middleware is done",
		File: "job/batch.go", Func: "withMiddleware",
		Old:  "whole := errUnended",
		New:  "whole := error(nil)",
		Test: "TestHandleBatch_middleware",
	},
	{
		Promise: "reports", Name: "log lines are not bounded",
		File: "job/report.go", Func: "Log",
		Old:  "trimTo(text, MaxLogLine)",
		New:  "trimTo(text, MaxOutput)",
		Test: "TestReport_isBounded",
	},
	{
		Promise: "kinds", Name: "what is registered while paused is handled at once",
		File: "job/kinds.go", Func: "(*kinds).with",
		Old:  "!next.paused && !next.withdrawn[name]",
		New:  "!next.withdrawn[name]",
		Test: "TestRegistryWhileRunning",
	},
	{
		Promise: "kinds", Name: "some kinds of several are withdrawn",
		File: "job/kinds.go", Func: "(*Registry).replace",
		Old:  "if err == nil {",
		New:  "if next != nil {",
		Test: "TestRegistryWhileRunning",
	},
}
