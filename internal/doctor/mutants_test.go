package doctor_test

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "doctor", Name: "the doctor waits for a database that hangs",
		File: "internal/doctor/doctor.go", Func: "Examine",
		Old:  "ctx, cancel := context.WithTimeout(ctx, within)",
		New:  "ctx, cancel := context.WithTimeout(ctx, time.Hour)",
		Test: "TestAPoolThatHangs",
	},
	{
		Promise: "doctor", Name: "the doctor takes every session that has claims for dead",
		File: "internal/doctor/jobs.go", Func: "(*pool).checkSessions",
		Old:  "s.Unseen > s.TTL + overdue",
		New:  "s.Unseen >= 0",
		Test: "TestJobs",
	},
	{
		Promise: "doctor", Name: "the doctor does not see that a lock has no holder",
		File: "internal/doctor/jobs.go", Func: "(*pool).checkLock",
		Old:  "held || !due",
		New:  "held || due",
		Test: "TestLocks",
	},
	{
		Promise: "doctor", Name: "the doctor does not see clocks that are apart",
		File: "internal/doctor/server.go", Func: "(*pool).checkServer",
		Old:  "max(apart, -apart)-doubt > mostApart",
		New:  "false && doubt > mostApart",
		Test: "TestClocks",
	},
	{
		Promise: "doctor", Name: "the doctor is content when there is something to mend",
		File: "internal/doctor/doctor.go", Func: "(Examination).Healthy",
		Old:  "f.Severity != Note",
		New:  "f.Severity == Note",
		Test: "TestNothingIsFound",
	},
	{
		Promise: "doctor", Name: "the doctor counts the connections of one node",
		File: "internal/doctor/compare.go", Func: "compare",
		Old:  "rooms[server], nodes)",
		New:  "rooms[server], min(nodes, 1))",
		Test: "TestConnections",
	},
}
