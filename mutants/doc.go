// Command mutants plants faults into the library, one at a time, and fails when
// the tests do not notice. A fault that nobody notices is a missing test.
//
// Each file *.diff here is one mutant:
//
//	breaks: a renewal extends a lock that another has
//	caught by: ./lua TestRenewExtendsOnlyItsOwn
//	caught by: . TestRenewalIsOfNoUseToAnybodyElse
//
//	@@ lua/mutex/renew.lua
//	-  if mine == 0 or lease_ms == 0 then
//	+  if lease_ms == 0 then
//	     return mine
//
// The lines with a blank or a minus have to be in the file exactly once, those
// with a blank or a plus take their place. Otherwise the code has changed, and the
// mutant fails until somebody has looked at it.
//
// Every test named (a package and a pattern as for -run) has to fail, by itself and
// not by a time-out, and has to pass without the mutant. The tree is not touched:
// the changed file is laid over it by go test -overlay, embedded scripts included.
//
//	go run ./mutants            all of them
//	go run ./mutants renew      those whose name contains "renew"
//
// With -generate it makes mutants by itself instead, of every package that users
// import and of the scripts: it negates conditions, replaces operators, numbers and
// results, and deletes statements and cases. README.md explains the report.
//
//	go run ./mutants -generate -sample 40                 forty of each package
//	go run ./mutants -generate -package internal/wake     all of one package
//	go run ./mutants -generate -package lua/fair -list    show them and run nothing
package main
