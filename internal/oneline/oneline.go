// Package oneline joins errors to one error whose text is one line. errors.Join puts each error on
// a line of its own, which breaks logs.
package oneline

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// OneLine returns foreign text as one line. Line breaks, other control characters, and characters
// that nobody sees are shown as in a Go string.
func OneLine(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if strconv.IsPrint(r) && !(r == utf8.RuneError && size == 1) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.Quote(text[:size]), `"`))
		}
		text = text[size:]
	}
	return b.String()
}

// IsInvisible reports whether nobody sees a character, such as a mark of direction or a joiner.
// unicode.IsPrint is true for some of these.
func IsInvisible(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == brailleBlank
}

// brailleBlank counts as a symbol, but looks like a space.
const brailleBlank = '\u2800'

// Errors joins the errors that are not nil. It returns nil if there is none, and a single error as
// it is. The text of the result does not repeat that of an error.
func Errors(errs ...error) error {
	var all []error
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &joinedError{all}
}

type joinedError struct{ errs []error }

// Error shows the first few errors, and how many others there are: a client that closes may fail to
// release very many locks.
func (l *joinedError) Error() string {
	const most = 5
	texts := l.texts(nil, map[string]bool{})
	if more := len(texts) - most; more > 1 {
		texts = append(texts[:most], "and "+strconv.Itoa(more)+" more")
	}
	return strings.Join(texts, "; ")
}

// texts appends the texts of the errors that are not there yet.
func (l *joinedError) texts(to []string, there map[string]bool) []string {
	for _, err := range l.errs {
		if inner, ok := err.(*joinedError); ok { //nolint:errorlint // a wrapped one has a text of its own
			to = inner.texts(to, there)
		} else if text := OneLine(err.Error()); !there[text] {
			to, there[text] = append(to, text), true
		}
	}
	return to
}

// Unwrap lets errors.Is and errors.As find all of the errors.
func (l *joinedError) Unwrap() []error { return l.errs }
