//go:build race

package promises_test

func init() { raced = true }
