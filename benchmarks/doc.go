// Command benchmarks measures redlatch, the bare commands of a lock (the floor), and other lock
// libraries, all in one run on one machine. Only the ratios within a run count; see README.md.
//
// A cell is one library with one kind of work. It runs in processes of its own, which this program
// starts: itself again, or a JVM with the real Redisson. Cells run in turn, A B C A B C, so that a
// slow minute of the machine affects all of them.
package main
