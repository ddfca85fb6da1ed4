package redistest

// TB is the part of testing.TB that *rapid.T has as well, so that faults can be
// drawn and shrunk.
type TB interface {
	Helper()
	Name() string
	Cleanup(func())
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}
