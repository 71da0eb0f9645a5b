package handlers

// Usage says which arguments the daemon's handlers take. docs/built-in-handlers.md says more.
const Usage = `Nodes of tenure serve handle two kinds:

  http.request sends one HTTP request. Its arguments:
    url      http or https
    method   POST unless it says otherwise
    headers  an object of names and values
    body     a string is sent as it is, anything else as JSON
    timeout  of the whole exchange, such as 10s (30s)
  2xx: done. 408, 425, 429, 5xx or no answer: tried again. Anything else: a dead letter.

  sql.exec executes one statement in the tenant's schema, in the transaction that ends the
  job, if handlers.sql_exec.enabled is true on the nodes. Its arguments:
    sql      the statement
    args     a list for $1, $2 and so on`
