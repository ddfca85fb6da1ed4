package acquisition

import (
	"context"

	"github.com/redlatch/redlatch/internal/owner"
	"github.com/redlatch/redlatch/internal/session"
)

// Search is a key of contexts. Its value is the innermost hold of one lock, or the innermost permit
// of one semaphore, of one client. Clients may use servers of their own, so their locks of one name
// differ.
type Search struct {
	session  *session.Session
	name     string
	isPermit bool
	path     *owner.Owner // that a hold of a lock must be on

	Found *Hold // that Finds found last
}

// NewSearch returns the key for holds of the lock of that name that are on the path of ctx.
func NewSearch(ctx context.Context, s *session.Session, name string) *Search {
	return &Search{session: s, name: name, path: owner.FromContext(ctx)}
}

// NewPermitSearch returns the key for permits of the semaphore of that name. Nobody re-enters a
// semaphore, so there is no path.
func NewPermitSearch(s *session.Session, name string) *Search {
	return &Search{session: s, name: name, isPermit: true}
}

// Finds reports whether h is a hold that is searched for.
func (s *Search) Finds(h *Hold) bool {
	if h.A.session != s.session || h.A.Name != s.name || h.A.IsPermit() != s.isPermit {
		return false
	}
	if !s.isPermit && !s.path.Includes(h.A.Owner) {
		return false
	}
	s.Found = h
	return true
}
