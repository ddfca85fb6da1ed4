package key

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/keptid"
	"github.com/redlatch/redlatch/lockerr"
)

// Exported is what the text of an exported hold says.
type Exported struct {
	Name  string // of the lock, with the prefix
	ID    string // under which Redis keeps the lock
	Fence int64
}

// exportPrefix begins each text. The number is that of the format.
const exportPrefix = "redlatch:1"

// String returns the text, which has no characters that need quotes in a URL, JSON or a shell.
func (e Exported) String() string {
	return fmt.Sprintf("%s:%d:%s:%s", exportPrefix, e.Fence, e.ID, url.QueryEscape(e.Name))
}

// ParseExported returns what a text says. The error is a *lockerr.ConfigError.
func ParseExported(text string) (Exported, error) {
	rest, known := strings.CutPrefix(text, exportPrefix+":")
	parts := strings.Split(rest, ":")
	if known && len(parts) == 4 {
		fence, err := strconv.ParseInt(parts[0], 10, 64)
		name, errName := url.QueryUnescape(parts[3])
		e := Exported{Name: name, ID: parts[1] + ":" + parts[2], Fence: fence}
		if err == nil && errName == nil && keptid.Is(e.ID) && IsAcquisition(e.ID) && e.String() == text {
			return e, nil
		}
	}
	// Not the text: whoever reads it in a log could take the lock.
	return Exported{}, &lockerr.ConfigError{Setting: "exported hold", Value: fmt.Sprintf("text of %d bytes", len(text)), Reason: "must be a text that Hold.Export returned"}
}
