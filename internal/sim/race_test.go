//go:build race

package sim

import "runtime"

// The race detector makes everything ten times slower. And in a synctest bubble two
// processors may run two tickers' sends at once in one context of the detector, which then
// crashes the program once in a while (seen with Go 1.26.8); what it finds depends on what
// happens before what, and not on how many run at a time.
func init() {
	*seeds, *hours = 2, 0.25
	runtime.GOMAXPROCS(1)
}
