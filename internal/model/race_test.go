//go:build race

package model

func init() { raced = true }
