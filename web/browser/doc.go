// Package browser has the tests of the dashboard in a real Chromium: `make test-browser`. It is a
// module of its own, so that what drives the browser is inherited by nobody who uses Tenure.
package browser
