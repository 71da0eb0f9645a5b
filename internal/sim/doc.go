// Package sim runs whole clusters on a clock and a network of its own. See the tests.
package sim
