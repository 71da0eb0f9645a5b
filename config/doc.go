// Package config is the node's YAML file: it gathers the Configs that the other
// packages own into one tree, reads it, fills in defaults, checks it and shows it.
//
// [Load] promises that a mistake is found before anything is touched, and that all
// mistakes are told in one go: each with file, line and column, the line itself,
// and how to mend it. A fault that only follows from another one is left out.
// The shipped deploy/node.yaml documents every key; a test keeps it complete.
//
// Any value may be a reference, ${env:NAME} or ${file:/path}. It is resolved per
// value after the YAML was parsed, so what a secret holds cannot change the file's
// shape. What a reference stood for is never printed, nor is a password or a
// cluster key that is written out in the file.
//
// A [Config] is a plain value; everything here is safe for concurrent use as long
// as nobody writes to it. What a setting means is left to the package that owns
// it, and whether a database can be reached to routing.
package config
