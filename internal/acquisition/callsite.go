package acquisition

import (
	"fmt"
	"path"
	"runtime"
	"strings"
)

// CallSite is where in the program a lock was acquired.
type CallSite struct{ pcs [6]uintptr }

const unknownSite = "unknown"

// IsKnown reports whether String shows a line of the program.
func (s CallSite) IsKnown() bool { return s.String() != unknownSite }

// CallerSite records the call stack. It costs well under a microsecond, because names are looked up
// only when they are shown.
func CallerSite() CallSite {
	var s CallSite
	runtime.Callers(3, s.pcs[:])
	return s
}

// String shows the first caller outside of redlatch. A goroutine may begin with a method of
// redlatch, as in go mu.Do(ctx, fn). Nothing tells then where the program did that, and the result
// is "unknown".
func (s CallSite) String() string {
	if s.pcs[0] == 0 {
		return unknownSite
	}
	frames := runtime.CallersFrames(s.pcs[:])
	for {
		f, more := frames.Next()
		switch {
		case strings.HasPrefix(f.Function, "runtime."):
			return unknownSite
		case !more || !isLibraryFrame(f.Function):
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
	}
}

// Short is String without the path to the directory of the file.
func (s CallSite) Short() string {
	dir, file := path.Split(s.String())
	return path.Join(path.Base(dir), file)
}

// isLibraryFrame reports whether a function belongs to redlatch.
func isLibraryFrame(function string) bool {
	const module = "github.com/redlatch/redlatch"
	for _, pkg := range []string{".", "/reentrant.", "/fair.", "/semaphore.", "/lock.", "/internal/mutex.", "/internal/acquisition."} {
		if strings.HasPrefix(function, module+pkg) {
			return true
		}
	}
	return false
}
