// Package promises holds the tests of what docs/guarantees.md promises: nodes, clients and
// operators as a program has them, on real databases, while processes are killed, databases
// hang and tenants move. A test whose name begins with P and a number proves that promise;
// the others prove what stands beside them there, or in docs/.
//
// testbed_test.go makes pools with tenants, and starts nodes that work on them;
// testbed_work_test.go gives them work, and testbed_check_test.go looks at what became of it.
package promises
