package redistest

import (
	"maps"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Snapshot remembers what the server has now. restore gives the server that back, as if all later
// writes had been lost, and reports whether anything was different. Leases have gone on meanwhile.
// Nobody may use the server during either call.
func (v *Virtual) Snapshot() (restore func() (different bool)) {
	taken, then := contents(v.Server), time.Now()
	return func() bool {
		now := contents(v.Server)
		passed := time.Since(then)
		different := false
		for name := range now {
			if _, had := taken[name]; !had {
				v.Server.Del(name)
				different = true
			}
		}
		for name, old := range taken {
			ended := old.ttl > 0 && old.ttl <= passed
			if old.ttl > 0 {
				old.ttl -= passed
			}
			present, has := now[name]
			switch {
			case ended && has: // the key that is there now was made by a write that is lost
				v.Server.Del(name)
				different = true
			case !ended && !(has && present.equals(old)):
				v.Server.Del(name)
				old.write(v.Server, name)
				different = true
			}
		}
		return different
	}
}

// content is the value of one key. One of the three is not empty.
type content struct {
	text   string
	fields map[string]string
	scores map[string]float64
	ttl    time.Duration // 0: it has no end
}

func (c content) equals(other content) bool {
	return c.text == other.text && c.ttl == other.ttl && maps.Equal(c.fields, other.fields) && maps.Equal(c.scores, other.scores)
}

func (c content) write(m *miniredis.Miniredis, name string) {
	switch {
	case c.fields != nil:
		for field, value := range c.fields {
			m.HSet(name, field, value)
		}
	case c.scores != nil:
		for member, score := range c.scores {
			_, _ = m.ZAdd(name, score, member)
		}
	default:
		_ = m.Set(name, c.text)
	}
	if c.ttl > 0 {
		m.SetTTL(name, c.ttl)
	}
}

// contents returns all keys of the types that locks use.
func contents(m *miniredis.Miniredis) map[string]content {
	all := map[string]content{}
	for _, name := range m.Keys() {
		c := content{ttl: m.TTL(name)}
		switch m.Type(name) {
		case "hash":
			c.fields = map[string]string{}
			fields, _ := m.HKeys(name)
			for _, f := range fields {
				c.fields[f] = m.HGet(name, f)
			}
		case "zset":
			live, _ := m.SortedSet(name)
			c.scores = maps.Clone(live)
		case "string":
			c.text, _ = m.Get(name)
		default:
			panic("redistest: locks have no " + m.Type(name))
		}
		all[name] = c
	}
	return all
}
