package stage

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/lua"
)

// AnyScript matches every script.
func AnyScript(cmd []string) bool {
	return strings.EqualFold(cmd[0], "evalsha") || strings.EqualFold(cmd[0], "eval")
}

var (
	// AnAcquire matches the request for a free lock.
	AnAcquire = func(cmd []string) bool { return lua.ScriptName(cmd) == "mutex/acquire" && cmd[8] == "1" }
	// AReentry matches a request of an owner that has the lock.
	AReentry = func(cmd []string) bool { return lua.ScriptName(cmd) == "mutex/acquire" && cmd[8] != "1" }
	// ATransfer matches the local handoff of a lock.
	ATransfer = Runs("mutex/transfer")
	// AnInnerOne matches the release of a hold that is not the last one.
	AnInnerOne = func(cmd []string) bool { return lua.ScriptName(cmd) == "mutex/release" && cmd[6] != "0" }
	// ALastOne matches the release of the last hold.
	ALastOne = func(cmd []string) bool { return lua.ScriptName(cmd) == "mutex/release" && cmd[6] == "0" }
	// ARenewal matches the renewal of one lock.
	ARenewal = func(cmd []string) bool { return lua.ScriptName(cmd) == "mutex/renew" && cmd[2] == "1" && cmd[5] != "0" }
)

// ScriptOf returns the name of the script that a command runs, or nothing.
func ScriptOf(cmd redis.Cmder) string {
	words := make([]string, len(cmd.Args()))
	for i, arg := range cmd.Args() {
		words[i], _ = arg.(string)
	}
	return lua.ScriptName(words)
}

// Runs matches the commands that run a script.
func Runs(script string) func([]string) bool {
	return func(cmd []string) bool { return lua.ScriptName(cmd) == script }
}
