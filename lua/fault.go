package lua

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrorClass says what an error of a script leaves open.
type ErrorClass int8

const (
	// Unanswered: sent, or maybe sent, and not answered. The script may have
	// run, may run yet, or never.
	Unanswered ErrorClass = iota + 1
	// NotRun: the script did not run and may be sent again: no connection, or
	// the server is loading, busy, failing over.
	NotRun
	// Refused: the server answered that it will not do this, in words that are
	// known to come before anything was changed. Sending again changes nothing.
	Refused
	// Failed: there is an answer, and it does not say whether the script ran. It
	// may be of the script, of a proxy, or of a hook in go-redis. Sending again
	// would most likely be answered the same.
	Failed
	// Closed: the go-redis client was closed. Nothing was sent, nor will be.
	Closed
)

// Classify says what err leaves open, and for an answer of the server its
// code. Unknown answers count as failed: nothing is sent again for ever, and
// nothing is taken for undone. Everything that is no answer counts as unanswered.
func Classify(err error) (ErrorClass, string) {
	var answer redis.Error
	var op *net.OpError
	var wrong *ReplyError
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &wrong):
		return Failed, "REPLY"
	case errors.Is(err, redis.ErrClosed):
		return Closed, "CLOSED"
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return NotRun, ""
	case errors.As(err, &op) && op.Op == "dial":
		return NotRun, ""
	case errors.As(err, &untrusted): // nothing was sent to a server that is not trusted
		return NotRun, ""
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Unanswered, ""
	case errors.As(err, &answer):
		return classifyAnswer(trimScriptLocation(answer.Error()))
	}
	return Unanswered, ""
}

func classifyAnswer(text string) (ErrorClass, string) {
	code, _, _ := strings.Cut(text, " ")
	switch code {
	case "BUSY", "LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS",
		"CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "NOSCRIPT":
		return NotRun, code
	case "NOPERM", "NOAUTH", "WRONGPASS", "DENIED", "NOPROTO", "CROSSSLOT",
		// In a script too: each meets them before its first write, or else at a
		// write that leaves nothing which anybody could hold or wait with.
		"OOM", "MISCONF", "WRONGTYPE", "BADFENCE":
		return Refused, code
	}
	text = strings.TrimPrefix(text, "ERR ")
	switch {
	case strings.HasPrefix(text, "max number of clients"):
		return NotRun, "MAXCLIENTS"
	// What a server with a password says to more than ten words from a stranger.
	case strings.HasPrefix(text, unauthenticated):
		return Refused, "NOAUTH"
	case strings.HasPrefix(text, "unknown command"):
		return Refused, code
	case hasAnyPrefix(text, clusterDownInScript) && strings.Contains(text, " while the cluster is down"):
		return NotRun, "CLUSTERDOWN"
	case hasAnyPrefix(text, nonLocalInScript):
		return NotRun, "TRYAGAIN"
	// Denied inside a script: Redis, and Redis 7.2 and Valkey.
	case strings.HasPrefix(text, "The user executing the script"),
		strings.HasPrefix(text, "ACL failure in script"):
		return Refused, "NOPERM"
	}
	return Failed, code
}

// clusterDownInScript is how Redis 7, Redis 6.2 and Valkey begin their refusal of the first write
// of a script, or of its first command, while the cluster is down. Nothing was changed before,
// because the state of the cluster does not change during a script.
var clusterDownInScript = []string{
	"Script attempted to execute a write command",
	"Script attempted to execute a command",
	"Lua script attempted to execute a write command",
	"Lua script attempted to execute a command",
	"Can not execute a write command",
	"Can not execute a command",
}

// nonLocalInScript is how Redis 7, Redis 6.2 and Valkey refuse a key inside a script that the node
// does not have, while it gives the slot away. The node had all keys when the script began, or it
// would have sent the client elsewhere. So the script has removed this one, or it has expired at
// that moment. The scripts look at such a key only where they have given the caller nothing yet,
// and have taken nothing from it.
var nonLocalInScript = []string{
	"Script attempted to access a non local key",
	"Lua script attempted to access a non local key",
	"Attempted to access a non local key",
}

func hasAnyPrefix(text string, all []string) bool {
	return slices.ContainsFunc(all, func(begin string) bool { return strings.HasPrefix(text, begin) })
}

const unauthenticated = "Protocol error: unauthenticated"

// explainAuth says what a server means that speaks of the protocol, and wants a password.
func explainAuth(err error) error {
	if redis.HasErrorPrefix(err, unauthenticated) {
		return fmt.Errorf("NOAUTH authentication required, and the client has no password: %w", err)
	}
	return err
}

// scriptErrorPrefix matches what Redis 6.2 puts before an error that ended a script.
var scriptErrorPrefix = regexp.MustCompile(`^(ERR Error running script \(call to \w+\): )?(@user_script: ?\d+: )+-?`)

func trimScriptLocation(text string) string { return scriptErrorPrefix.ReplaceAllString(text, "") }
