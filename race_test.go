//go:build race

package tenure_test

func init() { raced = true }
