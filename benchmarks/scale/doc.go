// Command scale measures what a lock, a hold and a waiter cost a server, and how the broadcasts of
// a cluster grow with its nodes. From these costs it works out what one Redis and several masters
// carry, and checks that at the sizes that fit on this machine. It writes the costs to
// benchmarks/results, and the tables of docs/scale.md.
package main
