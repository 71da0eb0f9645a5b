package dashboard_test

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "access", Name: "the audit shows what was done to tenants of others",
		File: "web/internal/dashboard/audit.go", Func: "auditPage",
		Old:  "of.Pool, of.Tenant = pool, tenantID(tenant)",
		New:  "of.Pool = pool",
		Test: "TestAudit",
	},
	{
		Promise: "access", Name: "the doctor speaks to who may see some tenants only",
		File: "web/internal/dashboard/doctor.go", Func: "(*site).doctorPage",
		Old:  "if !v.unlimited() {",
		New:  "if v == nil {",
		Test: "TestScope",
	},
	{
		Promise: "access", Name: "what waits in queues is told of all tenants",
		File: "web/internal/dashboard/queues.go", Func: "queuesPage",
		Old:  "Tenants: v.grant.Tenants}",
		New:  "Tenants: nil}",
		Test: "TestScope",
	},
	{
		Promise: "access", Name: "jobs of other tenants are suspended with one's own",
		File: "web/internal/dashboard/all.go", Func: "eachPart",
		Old:  "of.Pool, of.Tenant = pool, tenant",
		New:  "of.Pool, _ = pool, tenant",
		Test: "TestManyJobs",
	},
}
