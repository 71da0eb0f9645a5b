package signin

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "access", Name: "who signs in and has no role is let in",
		File: "web/internal/signin/signin.go", Func: "(*SignIn).finish",
		Old:  "if realm.grantOf(who.Values).Role == access.None {",
		New:  "if who.Name == \"\" {",
		Test: "TestStrangers",
	},
	{
		Promise: "access", Name: "an answer of the provider is good in any browser",
		File: "web/internal/signin/session.go", Func: "(attempt).isAnswered",
		Old:  "== 1",
		New:  ">= 0",
		Test: "TestAnswersAreForOneBrowser",
	},
	{
		Promise: "access", Name: "an ID token of another sign-in is accepted",
		File: "web/internal/signin/signin.go", Func: "(*SignIn).redeem",
		Old:  "if id.Nonce != a.Nonce {",
		New:  "if id.Nonce == \"\" && a.Nonce == \"\" {",
		Test: "TestStrangers",
	},
	{
		Promise: "access", Name: "a session never ends",
		File: "web/internal/signin/signin.go", Func: "(*SignIn).GrantOf",
		Old:  "|| s.now().After(who.Began.Add(realm.cfg.Session)) {",
		New:  "{",
		Test: "TestRolesGoAtOnce",
	},
	{
		Promise: "access", Name: "strangers queue for a provider that hangs",
		File: "web/internal/signin/signin.go", Func: "(*SignIn).providerOf",
		Old:  "if realm.failed != nil && s.now().Before(realm.until) {",
		New:  "if realm.failed != nil && s.now().After(realm.until) {",
		Test: "TestManyAskForAProviderThatHangs",
	},
	{
		Promise: "access", Name: "after the sign-in one is led anywhere",
		File: "web/internal/signin/signin.go", Func: "(*SignIn).ownPath",
		Old:  "return s.prefix + \"/\"",
		New:  "return to",
		Test: "TestInvite",
	},
}
