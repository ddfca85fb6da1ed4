package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	binaryEnv  = "REDLATCH_REDIS_SERVER"
	requireEnv = "REDLATCH_REQUIRE_SERVER"
)

// binary is a server program on this machine. The program itself says whether it is Redis or
// Valkey, and which version, before it runs as a server. Old servers refuse options that newer ones
// need.
type binary struct {
	path    string
	kind    string // "redis" or "valkey"
	version string
}

// findBinary returns the program that the environment names, or else the one in PATH. If there is
// none, it skips the test, or fails it if a server is required.
func findBinary(t testing.TB) binary {
	t.Helper()
	path := os.Getenv(binaryEnv)
	if path == "" {
		path, _ = exec.LookPath("redis-server")
	}
	if path == "" {
		missing := "left out: what only a real server shows; no redis-server in PATH. " +
			"scripts/servers.sh installs one, or set " + binaryEnv + " to the path of a redis-server or valkey-server"
		if os.Getenv(requireEnv) == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	b, err := identify(path)
	if err != nil {
		t.Fatal(err) // named or installed, but unusable: never a reason to skip
	}
	return b
}

// versionLine matches "Redis server v=7.0.15 sha=..." and "Valkey server v=9.1.2 sha=...".
var versionLine = regexp.MustCompile(`(?i)^(\w+) server v=([0-9.]+)`)

func identify(path string) (binary, error) {
	out, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil {
		return binary{}, fmt.Errorf("%s --version: %w: %s", path, err, out)
	}
	m := versionLine.FindStringSubmatch(string(out))
	if m == nil {
		return binary{}, fmt.Errorf("%s is neither redis-server nor valkey-server: %q", path, out)
	}
	return binary{path: path, kind: strings.ToLower(m[1]), version: m[2]}, nil
}

// hasProtectedConfigs reports whether the server locks DEBUG and protected settings unless an
// option unlocks them. 6.2 does not lock them, and ends with an error if it gets these options.
func (b binary) hasProtectedConfigs() bool {
	return b.kind == "valkey" || b.major() >= 7
}

func (b binary) major() int {
	major, _, _ := strings.Cut(b.version, ".")
	n, _ := strconv.Atoi(major) // the pattern above allows only digits
	return n
}
