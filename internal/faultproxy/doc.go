// Package faultproxy is a TCP proxy in front of PostgreSQL that understands just
// enough of the protocol to break connections at the worst moment: before a
// statement reaches the server, or after the server has done it and before its
// answer arrives. It can also hold back and refuse. Tests use it.
//
// # What it promises
//
// A [Rule] is asked about every connection and every execution before it is
// passed on. With [CutAfter] the connection ends only once the server has
// answered, so whatever the statement did, a COMMIT above all, is done. All
// methods may be called concurrently; Close waits for every goroutine.
//
// # What it leaves to others
//
// TLS: the connection string it offers asks for none. A frozen server or a network
// that eats packets of an idle connection look different from here; for those,
// stop the process.
package faultproxy
