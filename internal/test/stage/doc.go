// Package stage is the harness of the tests that use a whole client. These tests are beside the
// code that they test, as external test packages such as reentrant_test. The root package has no
// copy of anything here.
//
//	Scene      one client with one lock, behind a proxy that makes commands fail
//	Observed   a scene whose client has an observer
//	Stage      one server, in virtual time or real, with several clients (Actor), whose connections fail
//	Reentry    a mutex or a fair mutex, for tests about owners and contexts
//	Pair       a master and a replica, and a failover between them
//	Worker     a process of its own, which runs one of Workers
//	Kinds      the three primitives, for tests that hold for each of them
//
// Packages redistest and stage differ in what they know. Package redistest gives tests servers and
// faults, and knows no client of redlatch. Package stage makes clients, and looks at what they do.
//
// A helper is here if the tests of two packages use it. A helper of one package is in its
// helpers_test.go, and a helper of one file is in that file.
package stage
