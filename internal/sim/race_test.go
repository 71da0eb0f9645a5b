//go:build race

package sim

// The race detector makes everything ten times slower.
func init() { *seeds, *hours = 2, 0.25 }
