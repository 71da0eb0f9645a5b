package proposal

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "P9", Name: "a lock is let go of for a node that does not reach the database",
		File: "internal/proposal/proposal.go", Func: "(Elector).Elected",
		Old:  "!ok || !m.Reaches(pool)",
		New:  "!ok",
		Test: "TestElectedReachesTheDatabase",
	},
}
