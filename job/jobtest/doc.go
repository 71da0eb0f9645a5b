// Package jobtest tests handlers on a real PostgreSQL, without a node to start or
// a time to wait.
//
// An [Env] is some pools with tenants in them and the handlers of the application.
// Jobs take the way they take in production: the ledger of the tenant's database,
// the claim, the tenant's transaction or context, middleware, the handler, the
// outcome. Only who says when is different: nothing runs until the test says so,
// then one job at a time, so that a test sees the same order every time.
//
//	func TestMain(m *testing.M) { jobtest.Main(m) }
//
//	func TestInvoiceIsSentAndReminded(t *testing.T) {
//		t.Parallel()
//		mail := &fakeMail{}
//		invoices := NewInvoices(mail)
//		env := jobtest.New(t,
//			jobtest.Tenants("acme", "globex"),
//			jobtest.Register(invoices.Register),
//			jobtest.Schema(`CREATE TABLE invoice (id bigint PRIMARY KEY, sent_at timestamptz)`))
//		acme := env.Tenant(t, "acme")
//		acme.Exec(`INSERT INTO invoice (id) VALUES (42)`)
//
//		// One job, to its end.
//		res := acme.Run(SendInvoice{Invoice: 42})
//		require.Equal(t, job.Done, res.State, res)
//		require.True(t, jobtest.Value[bool](acme, `SELECT sent_at IS NOT NULL FROM invoice WHERE id = 42`))
//
//		// What it left to be done in two weeks.
//		next := jobtest.RequireEnqueued(acme, func(r RemindInvoice) bool { return r.Invoice == 42 })
//		require.InDelta(t, 14*24*time.Hour, next.In, float64(time.Minute))
//
//		// Two weeks later the mail server is down, and five minutes after that it is not.
//		mail.fail = errors.New("connection refused")
//		env.Advance(t, 15*24*time.Hour)
//		runs := env.Drain(t)
//		require.Equal(t, job.Retrying, runs[0].State)
//		require.ErrorIs(t, runs[0].Err, mail.fail)
//		require.Equal(t, 5*time.Minute, runs[0].Delay)
//
//		mail.fail = nil
//		env.Advance(t, runs[0].Delay)
//		runs = env.Drain(t)
//		require.Equal(t, 1, runs.Count(job.Done), runs)
//		require.Equal(t, 2, runs[0].Attempt)
//	}
//
// Code under test that takes a context gets the tenant from the [Tenant] itself:
//
//	err := invoices.Create(env.Tenant(t, "acme"), newInvoice)
//
// # What is promised
//
// An Env has databases of its own, clones of a migrated one, so tests with one each
// run in parallel. Jobs of one Env run one after another, no matter who asks for them;
// [Env.Drain] also runs those of other tests that share the Env. The databases of a
// failed test are kept, as long as their server runs.
//
// Where two nodes must be seen to share the work, [Env.Nodes] starts real ones. They
// run jobs when they find them, many at a time.
//
// # What is not
//
// There is no fake clock: handlers that look at the time, and PostgreSQL's now(),
// see the real one. Without [Roles], a tenant's transactions run as the superuser of the
// database, so missing rights do not show.
package jobtest
