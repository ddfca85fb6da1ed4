package stage

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/reentrant"
)

const dropped = "dropped without Unlock"

// collectedHandles has the names of the locks of which the runtime has collected a handle that Drop
// had made. If there is no report, it tells whether the runtime or the library is late.
var collectedHandles sync.Map

// Drop locks and forgets the hold. It returns what the test still knows of it. It is not inlined,
// so that no part of the hold stays in registers of the caller.
//
//go:noinline
func Drop(t testing.TB, ctx context.Context, m *reentrant.Mutex) (acquisition, site string) {
	h, err := m.Lock(ctx)
	site = Here(-1)
	require.NoError(t, err)
	runtime.AddCleanup(h, func(name string) { collectedHandles.Store(name, true) }, m.Name())
	return h.ID(), site
}

// Here is file:line of its caller, moved by offset lines.
func Here(offset int) string {
	_, file, line, _ := runtime.Caller(1)
	return fmt.Sprintf("%s:%d", filepath.Base(file), line+offset)
}
