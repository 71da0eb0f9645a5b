// Package devpg runs a throwaway PostgreSQL from binaries that are installed on
// the machine: for the demo, for tests, for load tests. Several databases in one
// instance stand for several pools.
//
// # What is promised
//
//   - [Start] needs no configuration, no port and no privileges. As root the
//     server runs as nobody, because PostgreSQL refuses root.
//   - The server is reached over a unix socket in a directory of mode 0700;
//     anybody allowed into it is a superuser. [Options.TCP] adds 127.0.0.1 with
//     a random password.
//   - [Server.Stop] leaves nothing behind. On Linux the server also ends with
//     its parent when that is killed; elsewhere the next Start ends it. The
//     directory of a killed parent is removed by the next Start on the machine.
//     (A postgres that is itself killed with SIGKILL leaves a megabyte of shared
//     memory, which only the system can remove.)
//   - All methods may be called concurrently. Starting, crashing and stopping
//     one Server exclude each other.
//
// # What is not
//
// Databases of one instance have advisory locks, LISTEN channels and schemas of
// their own, and one of them can be down alone ([Databases.CloseDatabase]). They
// share max_connections, the WAL, roles, and a crash. Unless [Options.Durable]
// is set, a crash may lose what was committed in the last second.
//
// Nothing is downloaded or installed: without binaries, [ErrNotFound] tells the
// ways out. Package pgtest, below this one, lends databases to tests.
package devpg
