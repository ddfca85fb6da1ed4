package redistest

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// Rule says which commands a fault hits, and what happens to them.
type Rule struct {
	Match  func(cmd []string) bool // as sent: the name first, as the client wrote it
	Skip   int                     // number of matching commands that pass unharmed first
	Times  int                     // number of commands that it hits then; 0 means all
	Action Action
}

// Any matches every command, including the handshake of the client.
func Any() func([]string) bool { return func([]string) bool { return true } }

// Command matches by name, in any case.
func Command(names ...string) func([]string) bool {
	return func(cmd []string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, cmd[0]) })
	}
}

// Containing matches a marker, such as a key or an id, in any argument.
func Containing(marker string) func([]string) bool {
	return func(cmd []string) bool {
		return slices.ContainsFunc(cmd, func(arg string) bool { return strings.Contains(arg, marker) })
	}
}

// Script matches every way of running a script: by hash or by source, and also read-only.
func Script(source string) func([]string) bool {
	sum := sha1.Sum([]byte(source))
	hash := hex.EncodeToString(sum[:])
	return func(cmd []string) bool {
		if len(cmd) < 2 || !Command("EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO")(cmd) {
			return false
		}
		return cmd[1] == source || strings.EqualFold(cmd[1], hash)
	}
}

// AllOf matches commands that all of the given functions match.
func AllOf(matches ...func([]string) bool) func([]string) bool {
	return func(cmd []string) bool {
		for _, match := range matches {
			if !match(cmd) {
				return false
			}
		}
		return true
	}
}

// Action is what a rule does to a command. The zero value only counts the command.
type Action struct {
	kind  actionKind
	delay time.Duration
	reply string
}

type actionKind int

const (
	actPass actionKind = iota
	actCutReply
	actCutRequest
	actReset
	actResetReply
	actDelayReply
	actDelayRequest
	actAnswer
	actSwallow
	actBlackHole
	actHoldBack
	actDuplicate
	actFailAfter
	actLoseReply
)

// An answer NOSCRIPT says that the command did not run. Some of the actions below need a command
// that ran. They let such an answer pass, and wait for the next match, which is the EVAL of the
// client. HoldBack cannot know that, so load the scripts first.

// CutReply lets the command run, drops the reply, and closes the connection.
func CutReply() Action { return Action{kind: actCutReply} }

// CutRequest closes the connection instead of forwarding the command.
func CutRequest() Action { return Action{kind: actCutRequest} }

// Reset is CutRequest with a TCP reset.
func Reset() Action { return Action{kind: actReset} }

// ResetReply is CutReply with a TCP reset.
func ResetReply() Action { return Action{kind: actResetReply} }

// DelayReply lets the command run immediately, and its reply arrive after d. Later replies on the
// connection wait too.
func DelayReply(d time.Duration) Action { return Action{kind: actDelayReply, delay: d} }

// DelayRequest lets the command reach the server d after it was sent, even if the client has given
// up meanwhile. Later commands on the connection wait until then. Each of them has its own delay
// from the time when it was sent, so the commands of a pipeline do not wait for each other.
func DelayRequest(d time.Duration) Action { return Action{kind: actDelayRequest, delay: d} }

// Refuse does not run the command, and answers with an error, such as "LOADING Redis is loading".
func Refuse(message string) Action {
	return Action{kind: actAnswer, reply: "-" + message + "\r\n"}
}

// Swallow forwards neither the command nor later commands on its connection, which stays open.
// Earlier replies and messages still arrive.
func Swallow() Action { return Action{kind: actSwallow} }

// SilenceBoth makes the connection of the command a black hole in both directions, from this
// command on. The connection stays open until the client closes it.
func SilenceBoth() Action { return Action{kind: actBlackHole} }

// LoseReply lets the command run. From its reply on, the connection is silent in both directions.
// It stays open until the client closes it.
func LoseReply() Action { return Action{kind: actLoseReply} }

// HoldBack keeps the command, and later ones on its connection, from the server until
// Fault.Release. So it makes a late original. The client's connection stays open and unanswered. If
// the client closes it later, the command still arrives.
func HoldBack() Action { return Action{kind: actHoldBack} }

// Duplicate forwards the command and its reply, and keeps a copy that Fault.Release sends again. So
// it makes a late copy.
func Duplicate() Action { return Action{kind: actDuplicate} }

// FailAfter lets the command run, and answers it with something else. That is an error, as from a
// proxy in between or a hook that fails. If message begins with ':', it is a reply that no script
// gives.
func FailAfter(message string) Action {
	reply := "-" + message + "\r\n"
	if strings.HasPrefix(message, ":") {
		reply = message + "\r\n"
	}
	return Action{kind: actFailAfter, reply: reply}
}
