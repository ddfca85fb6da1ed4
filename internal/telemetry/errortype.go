package telemetry

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/redlatch/redlatch/lockerr"
)

// ErrorType returns one word for an error, as error.type of OpenTelemetry demands: of a small set,
// and without the text of the error.
func ErrorType(err error) string {
	for _, kind := range kinds {
		if errors.Is(err, kind.err) {
			return kind.word
		}
	}
	var timeout net.Error
	var answer interface{ RedisError() }
	switch {
	case errors.As(err, &answer):
		return answerType(err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.As(err, new(*net.OpError)):
		return "connection"
	}
	return "_OTHER" // the word of OpenTelemetry for it
}

// kinds are looked for in this order.
var kinds = []struct {
	err  error
	word string
}{
	{lockerr.ErrClosed, "closed"},
	{lockerr.ErrNotReplicated, "not_replicated"},
	{lockerr.ErrLost, "lost"},
	{lockerr.ErrIndeterminate, "indeterminate"},
	{lockerr.ErrUnavailable, "unavailable"},
	{lockerr.ErrRefused, "refused"},
	{lockerr.ErrConfig, "config"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "canceled"},
	{io.EOF, "connection"},
	{io.ErrUnexpectedEOF, "connection"},
	{net.ErrClosed, "connection"},
	{syscall.ECONNREFUSED, "connection"},
	{syscall.ECONNRESET, "connection"},
}

// answerType returns the code of an error that Redis answered, if it is one of those that Redis
// has.
func answerType(err error) string {
	for _, code := range []string{"LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "BUSY", "OOM", "NOPERM", "NOAUTH", "NOSCRIPT", "MISCONF", "NOREPLICAS", "WRONGTYPE", "CROSSSLOT", "MOVED", "ASK"} {
		if strings.HasPrefix(err.Error(), code+" ") {
			return strings.ToLower(code)
		}
	}
	return "redis_error"
}
