package redlatch_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fair"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/reentrant"
	"github.com/redlatch/redlatch/semaphore"
)

// unmade has the results of methods of a handle that nobody made, for methods that return no error.
var unmade = map[string]func(got any) bool{
	"Name":         func(got any) bool { return got == "" },
	"Acquisition":  func(got any) bool { return got == "" },
	"ID":           func(got any) bool { return got == "" },
	"Units":        func(got any) bool { return got == 0 },
	"Fence":        func(got any) bool { return got == int64(0) },
	"Trusted":      func(got any) bool { return got == false },
	"TrustedUntil": func(got any) bool { return got.(time.Time).IsZero() },
	"Lost":         func(got any) bool { _, open := <-got.(<-chan struct{}); return !open },
	"Context":      endedUnheld,
	"Bind":         endedUnheld,
	"HoldFrom":     func(got any) bool { return got == false },
	"PermitFrom":   func(got any) bool { return got == false },
}

// endedUnheld reports whether a context has ended because nothing is held.
func endedUnheld(got any) bool {
	ctx := got.(context.Context)
	return ctx.Err() != nil && errors.Is(context.Cause(ctx), redlatch.ErrNotHeld)
}

// Reflection calls every exported method, so that the test covers new methods too.
func TestWhatNobodyMadeSaysSo(t *testing.T) {
	t.Parallel()
	for _, v := range []any{
		new(redlatch.Client), (*redlatch.Client)(nil),
		new(reentrant.Mutex), new(fair.Mutex), new(semaphore.Semaphore),
		(*reentrant.Mutex)(nil), (*fair.Mutex)(nil), (*semaphore.Semaphore)(nil),
		new(lock.Hold), (*lock.Hold)(nil), new(semaphore.Permit), (*semaphore.Permit)(nil),
	} {
		saysSo(t, reflect.ValueOf(v))
	}
}

func saysSo(t *testing.T, v reflect.Value) {
	for i := range v.NumMethod() {
		method := v.Type().Method(i)
		what := v.Type().String() + "." + method.Name
		var args []reflect.Value
		for at := range v.Method(i).Type().NumIn() {
			switch in := v.Method(i).Type().In(at); {
			case v.Method(i).Type().IsVariadic() && at == v.Method(i).Type().NumIn()-1:
			case in == reflect.TypeFor[context.Context]():
				args = append(args, reflect.ValueOf(t.Context()))
			case in == reflect.TypeFor[int]():
				args = append(args, reflect.ValueOf(1))
			case in.Kind() == reflect.Func:
				args = append(args, reflect.ValueOf(func(context.Context) error { panic(what + " runs") }))
			default:
				args = append(args, reflect.Zero(in))
			}
		}
		var results []reflect.Value
		require.NotPanics(t, func() { results = v.Method(i).Call(args) }, what)
		if len(results) == 0 {
			continue
		}
		last := results[len(results)-1]
		if last.Type() == reflect.TypeFor[context.CancelFunc]() {
			last = results[0]
		}
		switch check := unmade[method.Name]; {
		case last.Type() == reflect.TypeFor[error]():
			err, _ := last.Interface().(error)
			want := redlatch.ErrConfig
			switch method.Name {
			case "Unlock", "UnlockAfter", "Release", "ReleaseAfter", "Export":
				want = redlatch.ErrNotHeld
			}
			require.Error(t, err, what)
			stage.RequireOnly(t, want, err, what)
			require.NotContains(t, err.Error(), "\n")
		case strings.HasPrefix(v.Type().String(), "*redlatch."): // it makes locks
			saysSo(t, last)
		default:
			require.NotNil(t, check, "%s: what does it say of what nobody made?", what)
			require.True(t, check(last.Interface()), "%s: %v", what, last)
		}
	}
}

func TestNilOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, options := range [][]redlatch.Option{{nil}, {redlatch.LockOption(nil)}, {redlatch.WithPrefix("a"), nil}} {
		locks, err := redlatch.New(stage.Unused(t), options...)
		require.Nil(t, locks)
		stage.RequireBad(t, err, "option", nil)
	}
	locks, err := redlatch.New(stage.Unused(t))
	require.NoError(t, err)
	_, err = locks.Mutex("door", nil).TryLock(t.Context())
	stage.RequireBad(t, err, "option", nil)
	_, err = locks.FairMutex("door", redlatch.WithLease(time.Second), nil).TryLock(t.Context())
	stage.RequireBad(t, err, "option", nil)
	_, err = locks.Semaphore("pool", 1, nil, redlatch.WithLease(time.Second)).TryAcquire(t.Context(), 1)
	stage.RequireBad(t, err, "option", nil)
}
