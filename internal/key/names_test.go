package key

import (
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// keysOf returns the keys that a name has for all kinds of lock, without the fence, which two names
// may share (docs/keyspace.md). Reflection finds keys that are added later.
func keysOf(name string) []string {
	var keys []string
	for _, k := range []any{ForMutex(name), ForSemaphore(name)} {
		v := reflect.ValueOf(k)
		for i := range v.NumField() {
			switch f := v.Type().Field(i); {
			case f.Name == "Fence", f.Name == "Channel", f.Name == "Name":
			case f.Type.Kind() == reflect.String:
				keys = append(keys, v.Field(i).String())
			}
		}
	}
	return keys
}

// related draws a name from few parts, some of them parts of our own keys. So names often differ
// only by braces or by a prefix. Some results are not valid names.
func related() *rapid.Generator[string] {
	part := rapid.SampledFrom([]string{
		"x", "a", ":", "::", "{x}", "{a}", "{", "}", "{x", "x}", "a{x}", "é", "svc:", "redlatch:", "redlatch:queue", "queue", "alive",
		"permits", "holders", "permits-queue", "permits-alive", "-", "redisson_lock_token", "redisson_lock__channel", "client:",
	})
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(part, 1, 5).Draw(t, "parts"), "")
	})
}

// relatives returns names that are close to a name: its derived keys, with and without a prefix,
// and the name with braces added or removed.
func relatives(t *rapid.T, name string) []string {
	all := append(keysOf(name), ForMutex(name).Fence, ForMutex(name).Channel,
		"{"+name+"}", strings.NewReplacer("{", "", "}", "").Replace(name), ":"+name, related().Draw(t, "other"))
	for _, n := range all {
		all = append(all, "svc:"+n, "{"+n+"}")
	}
	return all
}

func TestDifferentNamesShareNoKey(t *testing.T) {
	compared := 0
	rapid.Check(t, func(t *rapid.T) {
		name := related().Filter(func(n string) bool { return CheckName(n) == nil }).Draw(t, "name")
		for _, other := range relatives(t, name) {
			if other == name || CheckName(other) != nil {
				continue
			}
			compared++
			for _, k := range keysOf(name) {
				if k == ForMutex(other).Fence {
					t.Fatalf("%q of %q is the fence of %q", k, name, other)
				}
				for _, theirs := range keysOf(other) {
					if k == theirs {
						t.Fatalf("%q is a key of %q and of %q", k, name, other)
					}
				}
			}
		}
	})
	require.Greater(t, compared, 100, "names that were compared")
}

func TestKeysOfOneNameDifferAndShareASlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := related().Filter(func(n string) bool { return CheckName(n) == nil }).Draw(t, "name")
		k := ForMutex(name)
		if k.Lock != name {
			t.Fatalf("the lock of %q is at %q: no Redisson would find it", name, k.Lock)
		}
		seen := map[string]bool{}
		for _, own := range append(keysOf(name), k.Fence) {
			if seen[own] {
				t.Fatalf("%q has %q twice", name, own)
			}
			seen[own] = true
			if Slot(own) != Slot(name) {
				t.Fatalf("%q of %q is in another slot", own, name)
			}
		}
		if Slot(k.Channel) != Slot(name) {
			t.Fatalf("the channel of %q is in another slot", name)
		}
	})
}

func TestAcceptedTextIsShownAsItIsStored(t *testing.T) {
	char := rapid.OneOf(
		rapid.Rune(), rapid.RuneFrom(nil, unicode.Cf), rapid.RuneFrom(nil, unicode.Cc), rapid.RuneFrom(nil, unicode.Zl, unicode.Zp),
		rapid.RuneFrom(nil, unicode.Other_Default_Ignorable_Code_Point), rapid.RuneFrom([]rune("aé日🔒 -")),
	)
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(char, 0, 4, -1).Draw(t, "text") + rapid.SampledFrom([]string{"", "\xff", "\xe2\x80"}).Draw(t, "end")
		if CheckDescription(text) != nil {
			return
		}
		accepted++
		for _, r := range text {
			if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point) {
				t.Fatalf("%q is accepted in %q", r, text)
			}
		}
		if !utf8.ValidString(text) {
			t.Fatalf("%q is accepted", text)
		}
	})
	require.NotZero(t, accepted)
}
