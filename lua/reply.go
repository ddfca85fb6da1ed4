package lua

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// ReplyError is an answer that the script cannot have given: another program
// answers on this address, or a proxy changes replies.
type ReplyError struct {
	Script string
	Reply  any
}

// Error names the script, and shows the beginning of the answer.
func (e *ReplyError) Error() string {
	return fmt.Sprintf("redlatch: unexpected reply of script %s: %.200q", e.Script, fmt.Sprint(e.Reply))
}

// reply reads the fields of a script's answer by their place. The first field
// that does not fit is kept as the error, so that callers check once.
type reply struct {
	script  string
	whole   any
	fields  []any
	short   [3]int64 // the fields of a short reply
	isShort bool
	err     error
}

const (
	// free is the short reply of a release. Nobody received a message, and nobody waits in the
	// queue.
	free = "free"
	// leastTime is the lowest server time that is a short reply of a grant. No server has started
	// within the first second of 1970, so a lower number is not from a script.
	leastTime = 1_000_000
)

func readReply(s *script, whole any, err error) reply {
	if errors.Is(err, redis.Nil) { // how go-redis returns a null
		whole, err = nil, nil
	}
	r := reply{script: s.name, whole: whole, err: err}
	if err != nil {
		return r
	}
	switch v := whole.(type) {
	case []any:
		r.fields = v
	case int64:
		r.short, r.isShort = [3]int64{1, v, v}, s.grants && v >= leastTime
	case string:
		r.short, r.isShort = [3]int64{1, 0, 0}, s.frees && v == free
	}
	return r
}

func (r *reply) unexpected() {
	if r.err == nil {
		r.err = &ReplyError{Script: r.script, Reply: r.whole}
	}
}

func (r *reply) int(i int) int64 {
	if r.isShort && i < len(r.short) {
		return r.short[i]
	}
	if r.err == nil && i < len(r.fields) {
		if n, ok := r.fields[i].(int64); ok {
			return n
		}
	}
	r.unexpected()
	return 0
}

func (r *reply) text(i int) string {
	if r.err == nil && i < len(r.fields) {
		if s, ok := r.fields[i].(string); ok {
			return s
		}
	}
	r.unexpected()
	return ""
}

// nested reads a field that has fields of its own. What does not fit in it is
// this reply's error too, once the caller has taken it over.
func (r *reply) nested(i int) reply {
	one := reply{script: r.script, whole: r.whole, err: r.err}
	if r.err == nil && i < len(r.fields) {
		one.fields, _ = r.fields[i].([]any)
	}
	return one
}

func (r *reply) time(i int) Time { return Time(r.int(i)) }

func (r *reply) millis(i int) time.Duration { return time.Duration(r.int(i)) * time.Millisecond }

// intText reads a number that travels as text; empty is zero.
func (r *reply) intText(i int) int64 {
	s := r.text(i)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		r.unexpected()
	}
	return n
}
