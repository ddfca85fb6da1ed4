// Command benchmarks measures redlatch beside the bare floor and beside other locks,
// all in one run on one machine. Only the ratios within a run count; see README.md.
//
// A cell is one library at one kind of work. It runs in processes of its own, which
// this program starts: itself again, or a JVM with the real Redisson. Cells take turns,
// A B C A B C, so that a slow minute of the machine is nobody's alone.
package main
