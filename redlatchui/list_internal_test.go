package redlatchui

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/catalog"
)

func TestACutReadingSaysSo(t *testing.T) {
	t.Parallel()
	h := &Handler{pages: loadPages("")}
	row := catalog.Row{Name: "x", Kind: catalog.Mutex, Held: true}
	for _, r := range []*reading{
		{rows: []catalog.Row{row}, listed: time.Now()}, {rows: []catalog.Row{row}, listed: time.Now(), truncated: true},
		{rows: []catalog.Row{row}, listed: time.Now(), truncated: true, busyTruncated: true},
	} {
		page := h.newListPage(r, parseQuery(nil))
		values := map[string]string{}
		for _, c := range page.Cards {
			values[c.Label] = c.Value
		}
		want := map[string]string{"Held": "1", "Waiting": "0", "At their limit": "0", "Oldest wait": "none"}
		if r.busyTruncated {
			want = map[string]string{"Held": "at least 1", "Waiting": "at least 0", "At their limit": "at least 0", "Oldest wait": "unknown"}
		}
		require.Equal(t, want, values)
		text := string(h.pages.render("list", page))
		require.Equal(t, r.busyTruncated, strings.Contains(text, "Somebody holds or waits for more names than the page reads."))
		require.Equal(t, r.truncated && !r.busyTruncated, strings.Contains(text, "more names used lately than the page reads"))
	}
}

// A page without a filter must not speak of one.
func TestAnEmptyListSaysWhy(t *testing.T) {
	t.Parallel()
	h := &Handler{pages: loadPages("")}
	idle := []catalog.Row{{Name: "x", Kind: catalog.Mutex}}
	for _, test := range []struct {
		r     *reading
		query string
		want  string
	}{
		{&reading{}, "", "Nobody has used a lock lately."},
		{&reading{rows: idle}, "", "Nobody holds or waits for a lock."},
		{&reading{rows: idle}, "q=y", "No name matches this filter."},
		{&reading{rows: idle}, "show=limit", "No name matches this filter."},
		{&reading{rows: idle, truncated: true, busyTruncated: true}, "", "The page cannot read all names."},
	} {
		test.r.listed = time.Now()
		values, err := url.ParseQuery(test.query)
		require.NoError(t, err)
		require.Contains(t, string(h.pages.render("list", h.newListPage(test.r, parseQuery(values)))), ">"+test.want+"<", test.query)
	}
}
