package redlatch_test

import (
	"strconv"
	"strings"
)

// script matches a script as it is on the wire, for faults that hit one script: name, hash, number
// of keys, keys, arguments. The tests of package lua check that the numbers of arguments do not
// change.
func script(cmd []string, keys, args int) bool {
	return anyScript(cmd) && cmd[2] == strconv.Itoa(keys) && len(cmd) == 3+keys+args
}

func anyScript(cmd []string) bool {
	return strings.EqualFold(cmd[0], "evalsha") || strings.EqualFold(cmd[0], "eval")
}

var (
	anAcquire  = func(cmd []string) bool { return script(cmd, 3, 6) && cmd[8] == "1" }
	aReentry   = func(cmd []string) bool { return script(cmd, 3, 6) && cmd[8] != "1" }
	aTransfer  = func(cmd []string) bool { return script(cmd, 2, 5) && strings.Contains(cmd[6], ":") }
	anInnerOne = func(cmd []string) bool { return aRelease(cmd) && cmd[6] != "0" }
	aLastOne   = func(cmd []string) bool { return aRelease(cmd) && cmd[6] == "0" }
	aRelease   = func(cmd []string) bool { return script(cmd, 2, 5) && !strings.Contains(cmd[6], ":") }
	aRenewal   = func(cmd []string) bool { return script(cmd, 1, 2) && cmd[5] != "0" }
)
