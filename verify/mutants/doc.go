// Command mutants puts faults into the library, one at a time, and fails if the tests do not
// notice. A fault that nobody notices is a missing test.
//
// Each file planted/*.diff is one mutant:
//
//	breaks: a renewal extends a lock that another has
//	caught by: ./lua TestRenewExtendsOnlyItsOwn
//	caught by: ./lock TestRenewalIsOfNoUseToAnybodyElse
//
//	@@ lua/mutex/renew.lua
//	-  if mine == 0 or lease_ms == 0 then
//	+  if lease_ms == 0 then
//	     return mine
//
// The lines with a blank or a minus have to be in the file exactly once. Those with a blank or a
// plus replace them. If the lines are not there, the code has changed, and the mutant fails until
// somebody has checked it.
//
// Every named test (a package and a pattern as for -run) has to fail by itself and not by a
// time-out. It has to pass without the mutant. The command does not change the tree: go test
// -overlay replaces the changed file, including embedded scripts.
//
//	go run ./verify/mutants            all of them
//	go run ./verify/mutants renew      those with "renew" in their name
//
// With -generate it generates mutants instead, for every package that users import, and for the
// scripts. It negates conditions, replaces operators, numbers and results, and deletes statements
// and cases. README.md explains the report.
//
//	go run ./verify/mutants -generate -sample 40                 forty of each package
//	go run ./verify/mutants -generate -package internal/pubsub     all of one package
//	go run ./verify/mutants -generate -package lua/fair -list    show them and run nothing
package main
