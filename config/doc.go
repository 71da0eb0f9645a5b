// Package config is the node's YAML file: it gathers the Configs that the other
// packages own into one tree, reads it, fills in defaults, checks it and shows it.
//
// [Load] promises that a mistake is found before anything is touched, and that all
// mistakes are told in one go: each with file, line, column and key, and how to
// mend it. A fault that only follows from another one is left out.
// The shipped deploy/node.yaml documents every key; a test keeps it complete.
//
// Any value may be a reference, ${env:NAME} or ${file:/path}. It is resolved per
// value after the YAML was parsed, so what a secret holds cannot change the file's
// shape. No error quotes a text of the file or of a reference: only keys, and values
// that are numbers, durations or addresses, which are no secrets. Config.Show prints
// references as they are written, and masks passwords and keys.
//
// A [Config] is a plain value; everything here is safe for concurrent use as long
// as nobody writes to it. What a setting means is left to the package that owns
// it, and whether a database can be reached to routing.
package config
