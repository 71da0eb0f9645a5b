// Package doctor looks for what is wrong with the databases of a configuration and with the nodes
// that work on them, and says of each [Finding] why it matters and what mends it.
//
// It connects to each pool once, as the pool's user, reads and changes nothing, and does not join
// the cluster. Pools are examined at the same time, each for so long at most; of one that takes
// longer, what was found until then is kept. Which jobs run next, and why one waits, is the
// operator's to say.
package doctor
