package archtest

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A reply with a status and the server's time may say that its command came too late. If session.Do
// does not look at a type of reply, it takes such a reply for an answer, and the client never
// learns the server's clock.
func TestDoLooksAtTheTimeOfEachReply(t *testing.T) {
	have, want := map[string]bool{}, map[string]bool{}
	sources(t, func(_ string, file *ast.File, _ *token.FileSet) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if s, is := n.Type.(*ast.StructType); is && file.Name.Name == "lua" && strings.HasSuffix(n.Name.Name, "Reply") && hasField(s, "Status") && hasField(s, "Now") {
					want["lua."+n.Name.Name] = true
				}
			case *ast.FuncDecl:
				if n.Name.Name == "serverTimeOf" {
					ast.Inspect(n, func(n ast.Node) bool {
						if c, is := n.(*ast.CaseClause); is {
							for _, typ := range c.List {
								sel := typ.(*ast.SelectorExpr)
								have[sel.X.(*ast.Ident).Name+"."+sel.Sel.Name] = true
							}
						}
						return true
					})
				}
			}
			return true
		})
	})
	require.NotEmpty(t, want)
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have)))
}

func hasField(s *ast.StructType, name string) bool {
	return slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool {
		return slices.ContainsFunc(f.Names, func(n *ast.Ident) bool { return n.Name == name })
	})
}
