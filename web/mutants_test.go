package web

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "access", Name: "the dashboard asks nobody who they are",
		File: "web/web.go", Func: "Handler",
		Old:  `guarded := site.guard.Wrap(known)`,
		New:  `guarded := access.Secured(known)`,
		Test: "TestHandlerAsksWhoCalls",
	},
	{
		Promise: "access", Name: "who may call does not change",
		File: "web/web.go", Func: "(*Site).SetAccess",
		Old:  "s.guard.Set(rules)",
		New:  "_ = rules",
		Test: "TestHandlerAsksWhoCalls",
	},
}
