package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ReplyError is an error reply such as "NOSCRIPT No matching script".
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// command is one request, with its bytes on the wire.
type command struct {
	args []string
	raw  []byte
}

// name returns the name of the command in upper case.
func (c command) name() string { return strings.ToUpper(c.args[0]) }

// readCommand reads one request, which is an array of bulk strings. Clients send no other form.
// Inline commands are for people, and readCommand refuses them.
func readCommand(r *bufio.Reader) (command, error) {
	f, err := readFrame(r)
	if err != nil {
		return command{}, err
	}
	words, ok := f.value.([]any)
	if !ok || f.kind != '*' || len(words) == 0 {
		return command{}, fmt.Errorf("not a command: %q", f.raw)
	}
	args := make([]string, len(words))
	for i, w := range words {
		if args[i], ok = w.(string); !ok {
			return command{}, fmt.Errorf("not a command: %q", f.raw)
		}
	}
	return command{args: args, raw: f.raw}, nil
}

// frame is one whole reply, with everything that it nests.
//
// Its value is a string, an int64, a bool, nil, a ReplyError, or a []any of these. A map is a []any
// with keys and values in turn.
type frame struct {
	kind  byte
	value any
	raw   []byte
}

// firstWord is the leading string of an array or push, in lower case. It is the kind of a pub/sub
// message.
func (f frame) firstWord() string {
	if items, ok := f.value.([]any); ok && len(items) > 0 {
		word, _ := items[0].(string)
		return strings.ToLower(word)
	}
	return ""
}

func (f frame) isNoScript() bool {
	e, ok := f.value.(ReplyError)
	return ok && strings.HasPrefix(string(e), "NOSCRIPT")
}

// readFrame reads one value of RESP2 or RESP3.
func readFrame(r *bufio.Reader) (frame, error) {
	p := frameReader{r: r}
	kind, value, err := p.next()
	return frame{kind: kind, value: value, raw: p.raw}, err
}

// frameReader keeps the bytes that it has read, so that the proxy forwards exactly the bytes that
// came in.
type frameReader struct {
	r   *bufio.Reader
	raw []byte
}

func (p *frameReader) next() (kind byte, value any, err error) {
	line, err := p.line()
	if err != nil {
		return 0, nil, err
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ',', '(':
		return kind, rest, nil
	case '-':
		return kind, ReplyError(rest), nil
	case '_':
		return kind, nil, nil
	case '#':
		return kind, rest == "t", nil
	case ':':
		value, err = strconv.ParseInt(rest, 10, 64)
		return kind, value, err
	}
	n, err := strconv.Atoi(rest)
	if err != nil {
		return kind, nil, fmt.Errorf("RESP: %q: %w", line, err)
	}
	switch kind {
	case '$', '!', '=':
		value, err = p.blob(kind, n)
	case '*', '~', '>':
		value, err = p.items(n)
	case '%':
		value, err = p.items(2 * n)
	case '|': // attributes come before the value that they describe
		if _, err = p.items(2 * n); err == nil {
			return p.next()
		}
	default:
		err = fmt.Errorf("RESP: unknown type in %q", line)
	}
	return kind, value, err
}

func (p *frameReader) items(n int) (any, error) {
	if n < 0 {
		return nil, nil
	}
	items := make([]any, 0, min(n, 1024)) // n comes from the sender, so it may be wrong
	for range n {
		_, item, err := p.next()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

func (p *frameReader) blob(kind byte, n int) (any, error) {
	if n < 0 {
		return nil, nil
	}
	start := len(p.raw)
	p.raw = append(p.raw, make([]byte, n+2)...)
	if _, err := io.ReadFull(p.r, p.raw[start:]); err != nil {
		return nil, err
	}
	text := string(p.raw[start : start+n])
	switch kind {
	case '!':
		return ReplyError(text), nil
	case '=':
		_, text, _ = strings.Cut(text, ":") // "txt:" or "mkd:" before the text
	}
	return text, nil
}

func (p *frameReader) line() (string, error) {
	line, err := p.r.ReadString('\n')
	p.raw = append(p.raw, line...)
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", errors.New("RESP: empty line")
	}
	return line, nil
}
