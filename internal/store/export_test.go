package store

// QueryFiles and MigrationFiles are the SQL as it is compiled in, which a test may look at: it is what a
// mutant changes, and not the files.
var QueryFiles, MigrationFiles = queryFiles, migrationFiles

// OrderApart is orderApart.
var OrderApart = orderApart

// CountTogether is countTogether.
var CountTogether = countTogether
