// Package keptid makes the ids under which Redis keeps a lock that nobody holds any more.
package keptid

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// Prefix begins each id. The rest of an id looks like an acquisition: <uuid>:<number>.
const Prefix = "kept-"

// New returns the first part of an id, which nobody can guess.
func New() string { return Prefix + uuid.NewString() }

// Of returns the id of a call. first is what New returned, and number is that of the call.
func Of(first string, number int) string { return fmt.Sprintf("%s:%d", first, number) }

// Is reports whether an id is that of a kept lock.
func Is(id string) bool { return strings.HasPrefix(id, Prefix) }
