package lua

import (
	"context"
	"errors"
	"net"
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
	switch {
	case errors.As(err, &wrong):
		return Refused, "REPLY"
	case errors.Is(err, redis.ErrClosed):
		return Refused, "CLOSED"
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return NotRun, ""
	case errors.As(err, &op) && op.Op == "dial":
		return NotRun, ""
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Unanswered, ""
	case errors.As(err, &answer):
		return classifyAnswer(err)
	}
	return Unanswered, ""
}

func classifyAnswer(err error) (Fault, string) {
	switch {
	case redis.IsLoadingError(err), redis.IsReadOnlyError(err), redis.IsClusterDownError(err),
		redis.IsTryAgainError(err), redis.IsMasterDownError(err), redis.IsMaxClientsError(err),
		redis.IsNoReplicasError(err),
		redis.HasErrorPrefix(err, "BUSY"), redis.HasErrorPrefix(err, "MOVED"),
		redis.HasErrorPrefix(err, "ASK"), redis.HasErrorPrefix(err, "NOSCRIPT"):
		return NotRun, code(err)
	case redis.IsPermissionError(err), redis.HasErrorPrefix(err, "The user executing the script"):
		return Refused, "NOPERM"
	}
	return Refused, code(err)
}

// code is the first word of an answer: "WRONGTYPE", "OOM", or "ERR".
func code(err error) string {
	word, _, _ := strings.Cut(err.Error(), " ")
	return word
}
