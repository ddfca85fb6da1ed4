package redlatch_test

import (
	"reflect"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// One import is enough for the types that programs name.
func TestTheRootPackageNamesTheTypesOfPrograms(t *testing.T) {
	locks, err := redlatch.New(stage.Unused(t))
	require.NoError(t, err)
	service := struct {
		mutex  *redlatch.Mutex
		fair   *redlatch.FairMutex
		pool   *redlatch.Semaphore
		either [2]redlatch.Locker
		hold   *redlatch.Hold
		permit *redlatch.Permit
	}{mutex: locks.Mutex("a"), fair: locks.FairMutex("b"), pool: locks.Semaphore("c", 1)}
	service.either = [2]redlatch.Locker{service.mutex, service.fair}
	require.Equal(t, "a", service.either[0].Name())
	require.Equal(t, "b", service.either[1].Name())
	require.Equal(t, "c", service.pool.Name())
	require.False(t, service.hold.Trusted() || service.permit.Trusted())
}

// go doc shows no methods of an alias, so its comment names them.
func TestTheCommentOfAnAliasNamesItsMethods(t *testing.T) {
	t.Parallel()
	source := readAll(t, "types.go")
	for name, alias := range map[string]reflect.Type{
		"Mutex": reflect.TypeFor[*redlatch.Mutex](), "FairMutex": reflect.TypeFor[*redlatch.FairMutex](),
		"Semaphore": reflect.TypeFor[*redlatch.Semaphore](), "Hold": reflect.TypeFor[*redlatch.Hold](),
		"Permit": reflect.TypeFor[*redlatch.Permit](), "Locker": reflect.TypeFor[redlatch.Locker](),
		"Observer": reflect.TypeFor[redlatch.Observer](),
	} {
		comment := regexp.MustCompile(`(?m)((?:^\t//.*\n)+)\t` + name + ` = `).FindStringSubmatch(source)
		require.Len(t, comment, 2, name)
		require.NotZero(t, alias.NumMethod(), name)
		for i := range alias.NumMethod() {
			require.Regexp(t, `\b`+alias.Method(i).Name+`\b`, comment[1], name)
		}
	}
}
