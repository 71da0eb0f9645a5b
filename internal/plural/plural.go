// Package plural puts numbers into sentences for people.
package plural

import "fmt"

// Count is how many of something there are, with the words for one and for any other number of
// it: Count(n, "job waits", "jobs wait").
func Count[N ~int | ~int32 | ~int64](n N, one, many string) string {
	return fmt.Sprint(n, " ", Which(n, one, many))
}

// Which chooses the words that go with so many.
func Which[N ~int | ~int32 | ~int64](n N, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
