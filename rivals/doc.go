// Package rivals puts redlatch and three other libraries that lock with Redis
// through the same faults, with the same settings, and prints what became of
// each. There is nothing in it but tests.
//
//	go test ./...    every row at a tiny scale: that faults bite and no cell is empty
//	make rivals      the table of README.md
//
// It judges nobody. What a library does not promise is no failure, and the cell
// says that it is not there. What fails here is the rig: a cell whose fault never
// happened is INVALID.
//
// Each library is used as its documentation shows; the page is named where it is
// opened. All that speak through go-redis have a client with default options.
package rivals
