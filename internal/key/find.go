package key

import "strings"

// Kind is what a key that Parse recognises belongs to.
type Kind int

const (
	// FenceKind is the fence of a mutex of either kind.
	FenceKind Kind = iota + 1
	// QueueKind is the queue of a fair mutex.
	QueueKind
	// PermitsKind is the limit and the permits of a semaphore.
	PermitsKind
	// PermitsQueueKind is the queue of a semaphore.
	PermitsQueueKind
)

// ScanPattern returns a pattern for SCAN that matches the fence, the queue, the permits and the
// queue for permits of each name that is the prefix and then something that glob matches. It also
// matches other keys, which Parse and the caller sort out. One pattern for all kinds needs only one
// pass over the keys.
func ScanPattern(prefix, glob string) string {
	if prefix == "" && glob == "" {
		return "red[il]*"
	}
	return "red[il]*" + EscapeGlob(prefix) + glob + "*"
}

// EscapeGlob returns a pattern of Redis that matches text only.
func EscapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(text)
}

// Parse returns the name that a key belongs to, if it is a key of one of the kinds above. The fence
// of a name without braces may also be that of the name in braces. Parse returns the one without.
func Parse(k string) (name string, kind Kind, ok bool) {
	if rest, found := strings.CutPrefix(k, fencePrefix+":"); found {
		name, ok = parseRedisson(rest)
		return name, FenceKind, ok
	}
	rest, found := strings.CutPrefix(k, ownPrefix)
	if !found {
		return "", 0, false
	}
	what, rest, _ := strings.Cut(rest, ":")
	switch what {
	case "queue":
		kind = QueueKind
	case "permits":
		kind = PermitsKind
	case "permits-queue":
		kind = PermitsQueueKind
	default:
		return "", 0, false
	}
	name, ok = parseOwn(rest)
	return name, kind, ok
}

// parseRedisson undoes redissonKey.
func parseRedisson(rest string) (name string, ok bool) {
	if bare, found := unbrace(rest); found {
		return bare, true
	}
	return rest, rest != "" && strings.Contains(rest, "{")
}

// parseOwn undoes ownKey.
func parseOwn(rest string) (name string, ok bool) {
	if tagged, found := strings.CutPrefix(rest, ":"); found {
		return tagged, strings.Contains(tagged, "{")
	}
	return unbrace(rest)
}

// unbrace returns the name in {name}, if that has no opening brace of its own.
func unbrace(text string) (name string, ok bool) {
	inner, opened := strings.CutPrefix(text, "{")
	name, closed := strings.CutSuffix(inner, "}")
	return name, opened && closed && name != "" && !strings.Contains(name, "{")
}
