package main

import (
	"fmt"
	"strings"
	"time"
)

// redissons is one of Redisson's locks. A JVM measures it, which verify/interop/driver builds and
// which reads the same cells; see runner.
func redissons(kind string) library {
	return library{
		name: kind, module: javaModule, redis: true, sends: []string{"evalsha", "eval"},
		open: func(cell) (locker, error) { return nil, fmt.Errorf("%s is measured by a JVM", kind) },
	}
}

// javaModule marks libraries that a JVM measures.
const javaModule = "org.redisson:redisson"

// fields are the parts of a cell that the JVM reads.
func (c cell) fields() []string {
	numbers := map[string]int{
		"Clients": c.Clients, "Goroutines": c.Goroutines, "Names": c.Names, "Permits": c.Permits, "Process": c.Process,
	}
	all := []string{"Library=" + c.Library, "Addrs=" + strings.Join(c.Addrs, ","), fmt.Sprint("Cluster=", c.Cluster)}
	for name, n := range numbers {
		all = append(all, fmt.Sprint(name, "=", n))
	}
	for name, d := range map[string]time.Duration{"Hold": c.Hold, "Warm": c.Warm, "Measure": c.Measure} {
		all = append(all, fmt.Sprint(name, "=", d.Nanoseconds()))
	}
	return all
}
