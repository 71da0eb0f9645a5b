package timeline

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "P9", Name: "a database may be on any timeline",
		File: "internal/timeline/wire.go", Func: "decodeStamps",
		Old:  "timeline > maxTimeline {",
		New:  "timeline == 1<<31 {",
		Test: "TestWildTimelines",
	},
	{
		Promise: "P9", Name: "anybody may vouch for a promotion in anybody's name",
		File: "internal/timeline/wire.go", Func: "(*tokens).isValid",
		Old:  "return hmac.Equal(token, t.sign(member, at)) &&",
		New:  "return len(token) == tokenSize &&",
		Test: "TestAVoucherIsItsSenders",
	},
	{
		Promise: "P9", Name: "a promotion that was vouched for once holds for ever",
		File: "internal/timeline/inquiry.go", Func: "(*Table).acceptAnswer",
		Old:  "said.By, now.Add(believedFor)",
		New:  "said.By, now.Add(1000*believedFor)",
		Test: "TestARumourExpiresUnlessRepeated",
	},
}
