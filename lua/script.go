package lua

import (
	"context"
	"crypto/sha1" //nolint:gosec // the script cache of Redis is keyed by SHA-1
	"embed"
	"encoding/hex"
	"path"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed mutex/*.lua fair/*.lua semaphore/*.lua queue/*.lua pubsub/*.lua include/*.lua
var sources embed.FS

// script is one Lua file with the functions of its includes, as it is sent.
type script struct {
	name   string
	grants bool // the server time alone is a reply too: a grant at that time, which is also its fence
	frees  bool // "free" is a reply too: nobody received a message, and nobody waits in the queue
	// load is lazy: hashing in a package variable would panic at import in a
	// program that forbids SHA-1 (GODEBUG=fips140=only), even if it never locks.
	load func() loaded
}

// loaded is a script as it is sent: its text and its hash, and both as an argument of a command.
type loaded struct {
	body, sha       string
	bodyArg, shaArg any
}

func newScript(name string) *script {
	return &script{name: name, load: sync.OnceValue(func() loaded {
		body, err := assemble(name)
		if err != nil {
			panic(err) // the files are part of the binary; a test loads them all
		}
		sum := sha1.Sum([]byte(body)) //nolint:gosec // see above
		sha := hex.EncodeToString(sum[:])
		return loaded{body: body, sha: sha, bodyArg: body, shaArg: sha}
	})}
}

// newGrantScript makes a script that grants.
func newGrantScript(name string) *script {
	s := newScript(name)
	s.grants = true
	return s
}

// newReleaseScript makes a script that releases.
func newReleaseScript(name string) *script {
	s := newScript(name)
	s.frees = true
	return s
}

// run sends the script once, by its hash and, where the server does not know
// it yet, with its text. When ctx has ended by then, the error is NOSCRIPT.
func (s *script) run(ctx context.Context, rdb Redis, keys []any, args ...any) (any, error) {
	l := s.load()
	if w, ok := rdb.(withText); ok {
		return send(ctx, w.Redis, "eval", l.bodyArg, keys, args)
	}
	v, err := send(ctx, rdb, "evalsha", l.shaArg, keys, args)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") && ctx.Err() == nil {
		v, err = send(ctx, rdb, "eval", l.bodyArg, keys, args)
	}
	return v, err
}

// IsSplit says that no node has all keys of a command, because the slot migrates, and that nothing
// was changed.
func IsSplit(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	_, code := Classify(err)
	return code == "TRYAGAIN"
}

// isUnclear says that a command may have changed something, although there is an error.
func isUnclear(err error) bool {
	class, _ := Classify(err)
	return err != nil && (class == Unanswered || class == Failed)
}

// WithEval has scripts sent with their text, for a server that lacks them and is far away.
func WithEval(rdb Redis) Redis { return withText{rdb} }

type withText struct{ Redis }

func send(ctx context.Context, rdb Redis, verb, script any, keys, args []any) (any, error) {
	cmd := newNoRetryCmd(ctx, verb, script, keys, args)
	if err := rdb.Process(ctx, cmd); err != nil {
		return nil, explainAuth(err)
	}
	return cmd.Result()
}

// ScriptName says which script a command on a connection runs, sent by hash or in full:
// "semaphore/acquire" for instance, and nothing when it is none of these. For those
// who watch connections, as tests do.
func ScriptName(cmd []string) string {
	if len(cmd) < 2 || !strings.EqualFold(cmd[0], "EVALSHA") && !strings.EqualFold(cmd[0], "EVAL") {
		return ""
	}
	return scriptNames()[cmd[1]]
}

// ScriptSources are all scripts as they are sent, in no order: what to SCRIPT LOAD on a
// server that is to know them before the first command.
func ScriptSources() (texts []string) {
	for text := range scriptNames() {
		if strings.Contains(text, "\n") { // and not a hash
			texts = append(texts, text)
		}
	}
	return texts
}

// scriptNames has every script by its text and by its hash.
var scriptNames = sync.OnceValue(func() map[string]string {
	known := map[string]string{}
	for _, dir := range []string{"mutex", "fair", "semaphore", "queue", "pubsub"} {
		files, err := sources.ReadDir(dir)
		if err != nil {
			panic(err) // part of the binary
		}
		for _, f := range files {
			l := newScript(path.Join(dir, f.Name())).load()
			name := path.Join(dir, strings.TrimSuffix(f.Name(), ".lua"))
			known[l.body], known[l.sha] = name, name
		}
	}
	return known
})
