// Package notify tells the acquirer of a pool that jobs were enqueued there, whichever
// node it runs on. Nothing depends on it but how soon a job starts: a hint may be lost,
// late or superfluous, and an acquirer finds every job by itself, a little later.
package notify
