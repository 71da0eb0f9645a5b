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
		Promise: "P1", Name: "a batch that middleware kept from its handler is done",
		File: "job/batch.go", Func: "withMiddleware",
		Old:  "whole := errUnended",
		New:  "whole := error(nil)",
		Test: "TestHandleBatch_middleware",
	},
}
