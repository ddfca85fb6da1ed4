package archtest

import (
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// retired are words that docs/glossary.md retires, as parts of exported names. The words that are
// also plain English, such as "try", are left out.
var retired = []string{
	"about", "aside", "beat", "beats", "book", "bury", "desk", "ear", "enter", "family", "flying", "hear", "heard", "keeper",
	"landing", "leave", "patience", "polite", "record", "said", "streak", "stray", "strays", "suspicion", "tell", "told", "turn", "turns",
	"verdict", "want", "wants", "wish",
}

var partOfName = regexp.MustCompile(`[A-Z]?[a-z0-9]+|[A-Z]+`)

func TestExportedNamesHaveNoRetiredWords(t *testing.T) {
	forbidden := map[string]bool{}
	for _, word := range retired {
		forbidden[word] = true
	}
	check := func(path string, name *ast.Ident) {
		if !name.IsExported() {
			return
		}
		for _, part := range partOfName.FindAllString(name.Name, -1) {
			if forbidden[strings.ToLower(part)] {
				t.Errorf("%s: %s: the glossary retires %q", path, name.Name, part)
			}
		}
	}
	sources(t, func(path string, file *ast.File, _ *token.FileSet) {
		if !ast.FileExports(file) {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				check(path, n.Name)
				return false
			case *ast.TypeSpec:
				check(path, n.Name)
			case *ast.ValueSpec:
				for _, name := range n.Names {
					check(path, name)
				}
			case *ast.Field:
				for _, name := range n.Names {
					check(path, name)
				}
			}
			return true
		})
	})
}

// unused are retired words that no Go file needs, not even as plain English in a test.
var unused = []string{"bury", "heard", "keeper", "patience", "polite", "strays", "suspicion", "told", "verdict"}

func TestNoFileHasUnusedWords(t *testing.T) {
	root, files := filepath.Join("..", "..", ".."), 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || d.Name() == "words_test.go":
			return nil
		}
		text, err := os.ReadFile(path)
		files++
		for _, part := range partOfName.FindAllString(string(text), -1) {
			if slices.Contains(unused, strings.ToLower(part)) {
				t.Errorf("%s: the glossary retires %q", path, part)
			}
		}
		return err
	}))
	require.Greater(t, files, 300, "the files were found")
}

// The rules are those that vale has for the documents.
func TestDocCommentsHaveNoRetiredWords(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join("..", "..", "..", ".vale", "redlatch", "RetiredWords.yml"))
	require.NoError(t, err)
	patterns := map[*regexp.Regexp]string{}
	for _, m := range regexp.MustCompile(`(?m)^  '(.*)': (.*)$`).FindAllStringSubmatch(string(rules), -1) {
		patterns[regexp.MustCompile("(?i)"+m[1])] = m[2]
	}
	require.Greater(t, len(patterns), 5, "the rules were found")
	sources(t, func(path string, file *ast.File, _ *token.FileSet) {
		docs := []*ast.CommentGroup{file.Doc}
		ast.FileExports(file) // only what is exported keeps its comments
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				docs = append(docs, d.Doc)
			case *ast.GenDecl:
				docs = append(docs, d.Doc)
				ast.Inspect(d, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.TypeSpec:
						docs = append(docs, n.Doc)
					case *ast.ValueSpec:
						docs = append(docs, n.Doc, n.Comment)
					case *ast.Field:
						docs = append(docs, n.Doc, n.Comment)
					}
					return true
				})
			}
		}
		for _, doc := range docs {
			text := strings.Join(strings.Fields(doc.Text()), " ")
			for pattern, word := range patterns {
				if found := pattern.FindString(text); found != "" {
					t.Errorf("%s: %q: say %q", path, found, word)
				}
			}
		}
	})
}
