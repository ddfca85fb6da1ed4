package redistest

import (
	"fmt"
	"strconv"
)

// KeyCount returns how many keys the arguments of EVAL or EVALSHA have. The command then counts as
// written.
func KeyCount(args []any) int {
	n, err := strconv.Atoi(fmt.Sprint(args[2]))
	if err != nil {
		panic(err)
	}
	return n
}
