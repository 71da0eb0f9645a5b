package jobtest_test

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "jobtest", Name: "a test's log is full of the throwaway server's risks",
		File: "job/jobtest/env.go", Func: "(unworried).Check",
		Old:  `strings.HasSuffix(e.LoggerName, ".risks")`,
		New:  `strings.HasSuffix(e.LoggerName, ".dangers")`,
		Test: "TestNothingIsSaidOfRisks",
	},
	{
		Promise: "jobtest", Name: "tenants' transactions run as the superuser in spite of Roles",
		File: "job/jobtest/env.go", Func: "(*settings).config",
		Old:  "cfg.Tenants.Role = rolePattern",
		New:  "cfg.Tenants.Role = \"\"",
		Test: "TestRoles",
	},
	{
		Promise: "jobtest", Name: "migrations are led to no tenant's schema",
		File: "job/jobtest/env.go", Func: "within",
		Old:  `q.Set("search_path", schema)`,
		New:  `q.Set("search_path", "public")`,
		Test: "TestMigrations",
	},
	{
		Promise: "P10", Name: "a job that snoozes for nothing comes back at once",
		File: "job/outcome.go", Func: "Decide",
		Old:  "max(*f.snooze, MinDelay)",
		New:  "*f.snooze",
		Test: "TestDrain_leavesAnyDelay",
	},
}
