package redistest

// TB is the part of testing.TB that *rapid.T also has, so that rapid can draw and shrink faults.
type TB interface {
	Helper()
	Name() string
	Cleanup(func())
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}
