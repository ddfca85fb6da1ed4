package lua_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lua"
)

// What is to be loaded ahead is every script, once, and in full.
func TestTextsAreAllScripts(t *testing.T) {
	var want, got []string
	for _, dir := range []string{"mutex", "fair", "semaphore", "queue", "pubsub"} {
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, f := range files {
			want = append(want, dir+"/"+f.Name())
		}
	}
	for _, text := range lua.ScriptSources() {
		got = append(got, lua.ScriptName([]string{"EVAL", text})+".lua")
	}
	require.NotEmpty(t, want)
	require.ElementsMatch(t, want, got)
}
