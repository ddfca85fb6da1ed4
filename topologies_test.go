package redlatch_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// The goal of this file: every primitive keeps every promise of the suite on the topologies that people
// run, and docs name only tests that there are.

// subjects are the primitives as the suite sees them.
var subjects = map[string]func(dial func(t testing.TB) redis.UniversalClient, more ...redlatch.Option) locktest.Subject{
	"mutex": mutexOn, "fair mutex": fairOn, "semaphore of one": semaphoreOfOneOn,
}

// Three masters with a replica each.
func TestEveryPrimitiveOnThreeMasters(t *testing.T) {
	t.Parallel()
	bed := redistest.StartCluster(t, 3, 1)
	for name, subject := range subjects {
		t.Run(name, func(t *testing.T) {
			locktest.Run(t, subject(func(testing.TB) redis.UniversalClient {
				return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{bed.Nodes[0].Addr()}})
			}))
		})
	}
}

// A master with a replica, which a sentinel watches.
func TestEveryPrimitiveBehindASentinel(t *testing.T) {
	t.Parallel()
	bed := newPair(t)
	sentinel := redistest.Sentinel(t, "primary", bed.master, 1)
	for name, subject := range subjects {
		t.Run(name, func(t *testing.T) {
			locktest.Run(t, subject(func(testing.TB) redis.UniversalClient {
				return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "primary", SentinelAddrs: []string{sentinel}})
			}))
		})
	}
}

// A document that names a test as a proof is wrong when the test is gone.
func TestTheDocumentsNameTestsThatExist(t *testing.T) {
	functions := map[string]bool{}
	defined := regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+|Benchmark\w+)\(`)
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "." {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range defined.FindAllStringSubmatch(string(text), -1) {
			functions[name[1]] = true
		}
		return err
	}))
	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	records, err := filepath.Glob("docs/adr/*.md")
	require.NoError(t, err)
	named := 0
	for _, document := range append(append(documents, records...), "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w+)").FindAllStringSubmatch(string(text), -1) {
			named++
			require.True(t, functions[name[1]], "%s names %s", document, name[1])
		}
	}
	require.Greater(t, named, 100)
}
