//go:build unix

package chaos_test

import (
	"context"

	"github.com/redlatch/redlatch/internal/test/check"
)

// protected is the resource that the holders of one lock write to. They write twice: to one that
// checks fences, and to one that does not.
type protected struct{ checked, unchecked memory }

type memory struct{ *check.Memory }

func (m memory) audit() check.Audit {
	audit, _ := m.Audit(context.Background()) // in memory
	return audit
}

// protected returns nil for a primitive without fences.
func (p primitive) protected() *protected {
	if !p.fenced() {
		return nil
	}
	return &protected{memory{check.NewMemory(true)}, memory{check.NewMemory(false)}}
}

func (p *protected) resources() []check.Resource {
	if p == nil {
		return nil
	}
	return []check.Resource{p.checked, p.unchecked}
}

func (p *protected) judge(c *course) {
	checked := p.checked.audit()
	c.count("updates", int(checked.Accepted))
	c.count("stale ones rejected", int(checked.Rejected))
	c.forbid("stale ones accepted", int(checked.Stale))
	c.forbid("updates lost with fence check", int(checked.Lost()))
}
