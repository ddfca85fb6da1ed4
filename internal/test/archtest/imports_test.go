package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// may lists the packages of this module that a package may import, without its tests. A package
// that is not listed may import none.
var may = map[string][]string{
	"event":                {},
	"lockerr":              {"internal/keptid", "internal/oneline"},
	"watchdog":             {},
	"lua":                  {},
	"internal/owner":       {},
	"internal/oneline":     {},
	"internal/node":        {},
	"internal/pubsub":      {"internal/node"},
	"internal/sender":      {"internal/node"},
	"internal/keptid":      {},
	"internal/key":         {"lockerr", "internal/keptid", "internal/oneline"},
	"internal/settings":    {"lockerr"},
	"internal/session":     {"event", "lockerr", "internal/oneline", "lua", "watchdog", "internal/key", "internal/node", "internal/sender", "internal/pubsub"},
	"internal/acquisition": {"event", "lockerr", "internal/oneline", "lua", "watchdog", "internal/keptid", "internal/owner", "internal/session", "internal/settings"},
	"lock":                 {"lockerr", "internal/oneline", "internal/acquisition", "internal/keptid", "internal/key", "internal/session"},
	"internal/mutex":       {"event", "lock", "lockerr", "lua", "watchdog", "internal/acquisition", "internal/key", "internal/owner", "internal/session", "internal/settings"},
	// Waiting in a queue, for the fair mutex and the semaphore.
	"internal/waitqueue": {"event", "lock", "lua", "watchdog", "internal/acquisition", "internal/key", "internal/session", "internal/settings", "internal/pubsub"},
	"internal/construct": {"internal/acquisition", "internal/mutex", "internal/session", "internal/settings"},
	"reentrant":          {"event", "lock", "lockerr", "lua", "internal/acquisition", "internal/construct", "internal/mutex", "internal/session", "internal/settings", "internal/pubsub"},
	"fair":               {"event", "lock", "lockerr", "lua", "internal/acquisition", "internal/construct", "internal/key", "internal/mutex", "internal/waitqueue", "internal/session", "internal/settings"},
	"semaphore":          {"event", "lock", "lockerr", "lua", "watchdog", "internal/acquisition", "internal/construct", "internal/keptid", "internal/key", "internal/owner", "internal/waitqueue", "internal/session", "internal/settings"},
	// Which names there are, and their state, for people who look: the command line, pages.
	"internal/catalog":  {".", "lock", "lockerr", "semaphore", "internal/key"},
	"internal/display":  {"internal/oneline"},
	"internal/testhook": {"internal/acquisition", "internal/session"},
	// redlatchprom and redlatchotel share these. Package telemetry knows no library, and no Redis.
	"internal/telemetry":            {"event", "lock", "lockerr"},
	"internal/telemetry/scripthook": {"internal/telemetry", "lua"},
	".":                             {"event", "lockerr", "internal/oneline", "internal/testhook", "reentrant", "fair", "semaphore", "lock", "internal/acquisition", "internal/construct", "internal/key", "internal/mutex", "internal/node", "internal/owner", "internal/session", "internal/settings"},

	// The fault suite: what clients did, and how to judge it.
	"internal/test/redistest": {"internal/key", "lua"},
	"internal/test/barecalls": {},
	"internal/test/check":     {"internal/test/history"},
	"internal/test/workload":  {"internal/test/check", "internal/test/history", "internal/owner", "lock", "lockerr", "semaphore"},
	"internal/test/locktest":  {"internal/owner", "internal/test/redistest", "lock", "lockerr"},
	// The harness of the tests that use a whole client. Only tests import it, and nothing is above
	// it.
	"internal/test/stage":   {".", "event", "internal/key", "internal/test/locktest", "internal/test/redistest", "internal/test/wrapped", "internal/testhook", "lock", "lua", "reentrant", "semaphore"},
	"internal/test/wrapped": {}, // compiled once, with the methods of a client for each wrapper

	// Examples use what users can.
	"examples/gettingstarted": {"."},
	"examples/longjob":        {".", "examples/internal/server", "lock"},
	"examples/nested":         {".", "examples/internal/server"},
	"examples/quickstart":     {".", "examples/internal/server"},
	"examples/workers":        {".", "examples/internal/server", "semaphore"},
	"examples/server":         {"examples/internal/server"},
}

func TestPackagesImportOnlyWhatTheyMay(t *testing.T) {
	for _, p := range packages(t) {
		importer := short(p.ImportPath)
		for _, imported := range p.Imports {
			if !strings.HasPrefix(imported, module) {
				continue
			}
			require.Contains(t, may[importer], short(imported), "%s imports %s", importer, short(imported))
		}
	}
}

func TestOnlyThoseThatSpeakToRedisImportIt(t *testing.T) {
	speakers := []string{".", "lua", "internal/node", "internal/sender", "internal/pubsub", "internal/catalog", "internal/telemetry/scripthook", "internal/test/redistest", "internal/test/locktest", "internal/test/stage", "internal/test/wrapped", "internal/test/check", "internal/test/barecalls"}
	for _, p := range packages(t) {
		name := short(p.ImportPath)
		if strings.HasPrefix(name, "examples/") || slices.Contains(speakers, name) {
			continue
		}
		for _, imported := range p.Imports {
			require.False(t, strings.HasPrefix(imported, "github.com/redis/"), "%s imports %s", name, imported)
		}
	}
}

// If tests inside of a package and tests that use a whole client are in one directory, the compiler
// builds the root package, package stage and everything between again.
func TestFewPackagesAreBuiltAgainForTheirTests(t *testing.T) {
	inside, whole := map[string]bool{}, map[string]bool{}
	for dir, imports := range may {
		if slices.Contains(imports, ".") {
			continue // the root package does not depend on it
		}
		files, err := filepath.Glob(filepath.Join("..", "..", "..", dir, "*_test.go"))
		require.NoError(t, err)
		for _, path := range files {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			require.NoError(t, err)
			if !strings.HasSuffix(file.Name.Name, "_test") {
				inside[dir] = true
			}
			for _, imported := range file.Imports {
				if name := strings.Trim(imported.Path.Value, `"`); short(name) == "." || short(name) == "internal/test/stage" {
					whole[dir] = true
				}
			}
		}
	}
	maps.DeleteFunc(inside, func(dir string, _ bool) bool { return !whole[dir] })
	require.Equal(t, []string{"fair", "reentrant", "semaphore"}, slices.Sorted(maps.Keys(inside)))
}

// A package that mentions a client compiles the methods of all of them. See package node.
func TestFewPackagesMentionTheClientsOfGoRedis(t *testing.T) {
	clients := []string{"Client", "ClusterClient", "ClusterOptions", "Conn", "Options", "PubSub", "Ring", "Tx", "UniversalClient"}
	mentioning := map[string]bool{}
	sources(t, func(path string, file *ast.File, _ *token.FileSet) {
		dir := filepath.ToSlash(filepath.Dir(path))
		if _, listed := may[dir]; !listed {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(clients, s.Sel.Name) {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "redis" {
					mentioning[dir] = true
				}
			}
			return true
		})
	})
	require.Equal(t, []string{".", "internal/catalog", "internal/node"}, slices.Sorted(maps.Keys(mentioning)))
}
