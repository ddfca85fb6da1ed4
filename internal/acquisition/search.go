package acquisition

import (
	"context"

	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
)

// Search is a key of contexts. Its value is the innermost hold of one lock of one client that is on the
// path of the searching context. Clients may use servers of their own, so their locks of one name differ.
type Search struct {
	session *session.Session
	name    string
	path    *owner.Owner
}

// NewSearch returns the key for the lock of that name, and for ctx.
func NewSearch(ctx context.Context, s *session.Session, name string) *Search {
	return &Search{session: s, name: name, path: owner.FromContext(ctx)}
}

// Finds reports whether h is a hold that is searched for.
func (s *Search) Finds(h *Hold) bool {
	return h.A.session == s.session && h.A.Name == s.name && !h.A.IsPermit() && s.path.Includes(h.A.Owner)
}
