package flowable_test

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "flowable", Name: "any worker ends another one's job",
		File: "web/internal/flowable/acquire.go", Func: "(*server).ownLock",
		Old:  "err == nil && j.Worker != worker",
		New:  "err == nil && j.Worker == \"\"",
		Test: "TestMistakes_asFlowableAnswersThem",
	},
	{
		Promise: "flowable", Name: "a worker finds jobs that its token does not reach",
		File: "web/internal/external/external.go", Func: "(*Workers).Find",
		Old:  "err == nil && !access.From(ctx).Sees(s.Tenant, s.Pool)",
		New:  "err == nil && !access.From(ctx).SeesTenant(s.Tenant)",
		Test: "TestWorkersHaveOnlyWhatTheirGrantReaches",
	},
	{
		Promise: "flowable", Name: "a worker lists jobs that its token does not reach",
		File: "web/internal/external/external.go", Func: "(*Workers).List",
		Old:  "f.Tenants = g.Tenants",
		New:  "f.Tenants = nil",
		Test: "TestWorkersHaveOnlyWhatTheirGrantReaches",
	},
	{
		Promise: "flowable", Name: "retries count the attempts that were made",
		File: "web/internal/flowable/jobs.go", Func: "(*server).shown",
		Old:  "attempts(j.MaxAttempts)-j.Attempt",
		New:  "attempts(j.MaxAttempts)+j.Attempt",
		Test: "TestFail_asFlowableDoes",
	},
}
