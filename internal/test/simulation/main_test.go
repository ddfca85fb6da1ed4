package simulation_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

// schedules is the number of schedules that each test runs for each primitive. -rapid.checks
// overrides it, as in make simulation. The output counts them.
const schedules = 40

func TestMain(m *testing.M) {
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["rapid.checks"] {
		set("rapid.checks", schedules)
	}
	if !given["rapid.seed"] {
		set("rapid.seed", rand.IntN(1<<53)+1)
	}
	// rapid names the seed of a schedule that fails. This line is for failures that end the whole
	// process, such as a goroutine that never ends.
	fmt.Printf("simulation: GOMAXPROCS=%d -test.run=%v -test.skip=%v -rapid.seed=%v\n", runtime.GOMAXPROCS(0),
		flag.Lookup("test.run").Value, flag.Lookup("test.skip").Value, flag.Lookup("rapid.seed").Value)
	// Schedules leave much garbage, and keep nothing. But part of it outlasts a collection, so with
	// the percentage alone, 2,000 schedules with a cluster took 2 GB and more.
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(1 << 30)
	redistest.Main(m)
}

func set(name string, value int) {
	if err := flag.Set(name, strconv.Itoa(value)); err != nil {
		panic(err)
	}
}
