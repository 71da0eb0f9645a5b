package access

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "access", Name: "while nobody is named anybody may do everything",
		File: "internal/access/guard.go", Func: "(*Guard).GrantOf",
		Old:  "if isLocal(r) {",
		New:  "if true {",
		Test: "TestWithoutTokensOnlyThisMachineIsLetIn",
	},
	{
		Promise: "access", Name: "any site has its visitors' browsers ask a node for what it wants",
		File: "internal/access/guard.go", Func: "isEmbedded",
		Old:  `return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"`,
		New:  `return r.Header.Get("Sec-Fetch-Dest") == "iframe"`,
		Test: "TestOtherSitesLeadHereOnly",
	},
	{
		Promise: "access", Name: "any secret is as good as the right one",
		File: "internal/access/guard.go", Func: "(*ready).grantOf",
		Old:  "subtle.ConstantTimeCompare(hash[:], d.hash[:]) == 1",
		New:  "subtle.ConstantTimeCompare(hash[:], d.hash[:]) >= 0",
		Test: "TestTokens",
	},
	{
		Promise: "access", Name: "a token that has expired is as good as ever",
		File: "internal/access/guard.go", Func: "(*ready).grantOf",
		Old:  "(d.expires.IsZero() || now.Before(d.expires))",
		New:  "(d.expires.IsZero() || !now.IsZero())",
		Test: "TestATokenExpires",
	},
	{
		Promise: "access", Name: "anybody may write a proxy's header",
		File: "internal/access/guard.go", Func: "(*Proxies).grantOf",
		Old:  "if !p.Trusts(r) {",
		New:  "if len(p.Networks) == 0 {",
		Test: "TestTrustedProxies",
	},
	{
		Promise: "access", Name: "of two users that a proxy's header names the first counts",
		File: "internal/access/guard.go", Func: "(*Proxies).grantOf",
		Old:  "case len(users) > 1 || users[0] == \"\":",
		New:  "case users[0] == \"\":",
		Test: "TestTrustedProxies",
	},
	{
		Promise: "access", Name: "without TLS everybody is answered",
		File: "internal/access/guard.go", Func: "(*Guard).ThroughProxies",
		Old:  "if !isLocal(r) && !g.rules.Load().proxies.Trusts(r) {",
		New:  "if !isLocal(r) && r.Header == nil {",
		Test: "TestThroughProxies",
	},
	{
		Promise: "access", Name: "a token of one tenant reads the metrics of all",
		File: "internal/access/guard.go", Func: "(*Guard).Require",
		Old:  "grant.May(role) && grant.isUnlimited():",
		New:  "grant.May(role):",
		Test: "TestRequire",
	},
}
