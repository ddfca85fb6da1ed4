package redlatchui

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/catalog"
	"github.com/redlatch/redlatch/internal/display"
)

const rowsOfPage = 50

// query is what a viewer asks of the list.
type query struct {
	listKey
	page int
}

// parseQuery takes what it does not know for the default.
func parseQuery(values url.Values) query {
	q := query{listKey: listKey{text: display.Safe(values.Get("q")), show: values.Get("show"), sort: values.Get("sort")}}
	if !slices.Contains([]string{showWaiting, showLimit, showAll}, q.show) {
		q.show = showBusy
	}
	if !slices.Contains([]string{sortOldest, sortHeld, sortName}, q.sort) {
		q.sort = sortWaiters
	}
	q.page, _ = strconv.Atoi(values.Get("page"))
	q.page = min(max(q.page, 1), mostNames)
	return q
}

// values is the inverse of parseQuery.
func (q query) values() string {
	v := url.Values{}
	set := func(name, value, byDefault string) {
		if value != byDefault {
			v.Set(name, value)
		}
	}
	set("q", q.text, "")
	set("show", q.show, showBusy)
	set("sort", q.sort, sortWaiters)
	set("page", strconv.Itoa(q.page), "1")
	return v.Encode()
}

func (q query) link() string {
	return "?" + q.values()
}

// choice is an option of a select.
type choice struct {
	Value, Text string
	Selected    bool
}

func choices(selected string, valuesAndTexts ...string) (all []choice) {
	for i := 0; i < len(valuesAndTexts); i += 2 {
		all = append(all, choice{valuesAndTexts[i], valuesAndTexts[i+1], valuesAndTexts[i] == selected})
	}
	return all
}

type listPage struct {
	head
	status
	Text                   string
	Show, Sort             []choice
	Cards                  []card
	Rows                   []rowView
	From, To, Total, Known int
	Previous, Next         string
	Truncated, IsCut       bool // IsCut: somebody may hold one of the names that are not here
	Hashes, IsFiltered     bool
	names                  []string
}

type card struct {
	Label, Value, Note, Link string
	Alarm                    bool
}

type rowView struct {
	Key, Name, Short, Kind, Holder, FullHolder string
	IsKept, IsFree, IsUnknown                  bool
	Held, Lease, Waiting, Oldest               string
	Bar                                        *bar
}

func (h *Handler) listPage(w http.ResponseWriter, r *http.Request) {
	page := h.newListPage(h.poller.list(r.Context()), parseQuery(r.URL.Query()))
	h.pages.write(w, r, http.StatusOK, "list", page)
}

func (h *Handler) newListPage(r *reading, q query) *listPage {
	found := r.list(q.listKey)
	last := max((len(found)+rowsOfPage-1)/rowsOfPage, 1)
	q.page = min(q.page, last)
	p := &listPage{
		head: h.head("Locks", "events?"+q.values()), Text: q.text, Total: len(found), Known: len(r.rows), Truncated: r.truncated, IsCut: r.busyTruncated, Hashes: h.hashes,
		IsFiltered: q.text != "" || q.show == showWaiting || q.show == showLimit,
		Show:       choices(q.show, showBusy, "held or waited for", showWaiting, "with waiters", showLimit, "at their limit", showAll, "all used lately"),
		Sort:       choices(q.sort, sortWaiters, "most waiters", sortOldest, "oldest wait", sortHeld, "held longest", sortName, "name"),
	}
	p.status = newStatus(r.problem(), r.listed)
	if r.unreadable > 0 {
		p.Unreadable = fmt.Sprintf("Redis did not show the state of %s. The last error: %s", plural(r.unreadable, "name"), display.Safe(r.lastError.Error()))
	}
	p.Cards = h.cards(r)
	from := (q.page - 1) * rowsOfPage
	to := min(from+rowsOfPage, len(found))
	now := r.now()
	for _, i := range found[from:to] {
		p.Rows = append(p.Rows, newRowView(&r.rows[i], now))
		p.names = append(p.names, r.rows[i].Name)
	}
	p.From, p.To = min(from+1, to), to
	if q.page > 1 {
		before := q
		before.page--
		p.Previous = before.link()
	}
	if to < len(found) {
		after := q
		after.page++
		p.Next = after.link()
	}
	return p
}

func (h *Handler) cards(r *reading) []card {
	if r.listed.IsZero() {
		return nil
	}
	c := r.counts()
	waiting := card{Label: "Waiting", Value: strconv.Itoa(c.waiting), Link: query{listKey{show: showWaiting, sort: sortWaiters}, 1}.link()}
	if c.listeners > 0 {
		waiting.Note = "and about " + plural(c.listeners, "client") + " of plain mutexes"
	}
	oldest := card{Label: "Oldest wait", Value: "none"}
	if c.oldest != nil {
		oldest.Value, oldest.Note = display.AgeSince(c.oldest.Oldest, r.now()), display.Short(c.oldest.Name, 40)
		oldest.Link = lockLink(c.oldest.Name)
	}
	all := []card{
		{Label: "Held", Value: strconv.Itoa(c.held), Note: "mutexes, and semaphores in use", Link: query{listKey{show: showBusy, sort: sortHeld}, 1}.link()},
		waiting, oldest,
		{Label: "At their limit", Value: strconv.Itoa(c.atLimit), Note: "semaphores without a free unit", Link: query{listKey{show: showLimit, sort: sortWaiters}, 1}.link()},
	}
	if r.busyTruncated {
		for i := range all {
			all[i].Value = "at least " + all[i].Value
			if all[i].Label == oldest.Label && c.oldest == nil {
				all[i].Value = "unknown"
			}
		}
	}
	if h.losses != nil {
		n := h.losses.LastHour()
		all = append(all, card{Label: "Lost in the last hour", Value: strconv.Itoa(n), Note: "by this program", Alarm: n > 0})
	}
	return all
}

func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

func lockLink(name string) string { return "lock?" + url.Values{"name": {name}}.Encode() }

func newRowView(r *catalog.Row, now time.Time) rowView {
	const nameLength, holderLength = 64, 48
	v := rowView{Key: r.Kind.String() + " " + url.QueryEscape(r.Name), Name: r.Name, Short: display.Short(r.Name, nameLength), Kind: r.Kind.String()}
	if r.Err != nil {
		v.Holder, v.FullHolder, v.IsUnknown = "unknown: "+display.Short(r.Err.Error(), holderLength), display.Safe(r.Err.Error()), true
		return v
	}
	if r.Held {
		v.Held, v.Lease = display.AgeSince(r.Since, now), display.LeaseLeft(r.Lease)
	}
	description := r.Description
	if description == "" {
		description = r.Holder
	}
	switch {
	case r.Kind == catalog.Semaphore:
		v.Holder = fmt.Sprintf("%d of %d in use", r.InUse, r.Limit)
		v.Bar = newBar(r.InUse, r.Limit)
	case r.Kept:
		v.Holder, v.IsKept = "nobody: kept after "+display.Short(description, holderLength), true
	case r.Held:
		v.Holder = display.Short(description, holderLength)
	default:
		v.Holder, v.IsFree = "free", true
	}
	if r.Kind == catalog.Mutex && r.Held {
		v.FullHolder = display.Safe(display.Holder(r.Holder, r.Description))
	}
	v.Waiting, v.Oldest = strconv.Itoa(r.Waiting), display.AgeSince(r.Oldest, now)
	if r.Listeners > 0 {
		v.Waiting = "~" + strconv.Itoa(r.Listeners)
	}
	return v
}
