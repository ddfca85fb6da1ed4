// Package rivals puts redlatch and three other libraries that lock with Redis through the same
// faults, with the same settings, and prints the results. It has only tests.
//
//	go test ./...    every row at a tiny scale: that faults bite and no cell is empty
//	make rivals      the table of README.md
//
// It judges no library. If a library does not promise something, that is no failure, and the cell
// says that it does not have it. Only an error of the test itself fails: a cell whose fault never
// happened is INVALID.
//
// Each library is used as its documentation shows. The code that opens it names the page. All
// libraries that use go-redis have a client with default options.
package rivals
