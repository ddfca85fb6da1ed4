// Package migrating has the code of docs/migrating.md: jobs as programs write them with other
// libraries, and the same jobs with redlatch. It has only tests. They run each job with a real
// server.
package migrating
