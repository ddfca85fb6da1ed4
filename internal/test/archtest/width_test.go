package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Comments of Go that have their own line, and the text of Markdown, fit in 100 columns. Code in
// Markdown, its tables and its pictures may be wider, and so may a line that nothing can break.
func TestTextFitsInAHundredColumns(t *testing.T) {
	const most = 100
	n := 0
	root := filepath.Join("..", "..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 || d.Name() == "node_modules" {
			return filepath.SkipDir
		}
		prose := map[string]func() func(line string) bool{".go": ofGo, ".md": ofMarkdown}[filepath.Ext(path)]
		if prose == nil || d.IsDir() {
			return nil
		}
		text, err := os.ReadFile(path)
		n++
		isProse := prose()
		for i, line := range strings.Split(string(text), "\n") {
			if wide := strings.ReplaceAll(line, "\t", "    "); isProse(line) && len([]rune(wide)) > most && canBreak(line) {
				t.Errorf("%s:%d is wider than %d columns", path, i+1, most)
			}
		}
		return err
	}))
	require.Greater(t, n, 500, "the files were found")
}

// ofGo accepts comments, but no directives and no code in them.
func ofGo() func(line string) bool {
	return func(line string) bool {
		text, is := strings.CutPrefix(strings.TrimLeft(line, "\t"), "// ")
		return is && !strings.HasPrefix(text, "\t")
	}
}

// ofMarkdown accepts what is no code, no table and no picture.
func ofMarkdown() func(line string) bool {
	inCode := false
	return func(line string) bool {
		start := strings.TrimSpace(line)
		if strings.HasPrefix(start, "```") {
			inCode = !inCode
		}
		return !inCode && !strings.HasPrefix(start, "|") && !strings.HasPrefix(start, "![") && !strings.HasPrefix(start, "[![") && !strings.HasPrefix(start, "#")
	}
}

// canBreak says that there is a space before the last word, apart from the mark of a list or a
// comment.
func canBreak(line string) bool {
	return len(strings.Fields(strings.TrimLeft(line, "\t /-*"))) > 1
}
