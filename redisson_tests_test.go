package redlatch_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page that maps Redisson's tests names only tests that exist.
func TestRedissonTestsAreMappedToTestsThatExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/redisson-tests.md")
	require.NoError(t, err)
	var code strings.Builder
	for _, pattern := range []string{"*_test.go", "*/*_test.go", "internal/*/*_test.go", "internal/test/locktest/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			_, _ = code.Write(text)
		}
	}
	_, tables, _ := strings.Cut(string(page), "\n## ")
	for _, name := range regexp.MustCompile(`\bTest\w+`).FindAllString(tables, -1) {
		assert.Contains(t, code.String(), "func "+name+"(", "a test")
	}
	for _, name := range regexp.MustCompile(`"[^"]+"`).FindAllString(tables, -1) {
		assert.Contains(t, code.String(), "{"+name+", func(", "a property")
	}
}
