package lua

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Fault says what an error of a script leaves open.
type Fault int8

const (
	// Unanswered: sent, or maybe sent, and not answered. The script may have
	// run, may run yet, or never.
	Unanswered Fault = iota + 1
	// NotRun: the script did not run and may be sent again: no connection, or
	// the server is loading, busy, failing over.
	NotRun
	// Refused: the server answered that it will not do this. Sending again
	// changes nothing; the scripts meet refusals before their first write.
	Refused
)

// Classify says what err leaves open, and for an answer of the server its
// code. Unknown answers count as refused, so that nothing is sent again for
// ever; everything that is no answer counts as unanswered, so that nothing is
// taken for undone.
func Classify(err error) (Fault, string) {
	var answer redis.Error
	var op *net.OpError
	var wrong *ReplyError
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &wrong):
		return Refused, "REPLY"
	case errors.Is(err, redis.ErrClosed):
		return Refused, "CLOSED"
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return NotRun, ""
	case errors.As(err, &op) && op.Op == "dial":
		return NotRun, ""
	case errors.As(err, &untrusted): // nothing was sent to a server that is not trusted
		return NotRun, ""
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Unanswered, ""
	case errors.As(err, &answer):
		return classifyAnswer(withoutPlace(answer.Error()))
	}
	return Unanswered, ""
}

func classifyAnswer(text string) (Fault, string) {
	code, _, _ := strings.Cut(text, " ")
	switch code {
	case "BUSY", "LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS",
		"CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "NOSCRIPT":
		return NotRun, code
	}
	text = strings.TrimPrefix(text, "ERR ")
	switch {
	case strings.HasPrefix(text, "max number of clients reached"):
		return NotRun, "MAXCLIENTS"
	// What a server with a password says to more than ten words from a stranger.
	case strings.HasPrefix(text, "Protocol error: unauthenticated"):
		return Refused, "NOAUTH"
	// Denied inside a script: Redis, and Redis 7.2 and Valkey.
	case strings.HasPrefix(text, "The user executing the script"),
		strings.HasPrefix(text, "ACL failure in script"):
		return Refused, "NOPERM"
	}
	return Refused, code
}

// raised matches what Redis 6.2 puts before an error that ended a script.
var raised = regexp.MustCompile(`^(ERR Error running script \(call to \w+\): )?(@user_script: ?\d+: )+-?`)

func withoutPlace(text string) string { return raised.ReplaceAllString(text, "") }
