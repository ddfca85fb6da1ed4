package key

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// Cache keeps the keys of names that were used lately. Programs make locks where they need them, and
// building the keys of a name costs several allocations. A Cache may be used concurrently.
type Cache[K any] struct {
	build func(name string) K
	slots [256]atomic.Pointer[cached[K]]
}

// cached is an entry of a Cache.
type cached[K any] struct {
	name string
	keys K
	err  error // what is wrong with the name
}

// NewCache makes a cache of what build returns for a name.
func NewCache[K any](build func(name string) K) *Cache[K] { return &Cache[K]{build: build} }

// Get returns the keys of a name, and the error of CheckName. The caller must not change the keys. Names
// that CheckName refuses are not kept: they may be very long.
func (c *Cache[K]) Get(name string) (*K, error) {
	slot := &c.slots[maphash.String(seed, name)%uint64(len(c.slots))]
	entry := slot.Load()
	if entry == nil || entry.name != name {
		name = strings.Clone(name) // it may be a small part of a large text, which would be kept too
		entry = &cached[K]{name: name, keys: c.build(name), err: CheckName(name)}
		if entry.err == nil {
			slot.Store(entry)
		}
	}
	return &entry.keys, entry.err
}

var seed = maphash.MakeSeed()
