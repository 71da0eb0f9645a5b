// Package pgtest lends databases to tests: one server per test process, one
// database per test, milliseconds each.
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		dsn := pgtest.Clone(t, "migrated", migrate)
//		…
//	}
//
// The server starts when a test first asks for a database. With [Main] it stops
// after the last test; without, it stops whenever no test uses it, so that a
// single test needs no TestMain but many would start many servers.
//
// TEST_DATABASE_URL, when set, names the server to use instead; its role must be
// allowed to create databases. All functions may be called from parallel tests.
package pgtest
