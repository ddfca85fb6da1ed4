package main

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/redlatch/redlatch/internal/display"
)

// topModel is the state of the screen. It knows the time and Redis by messages only, so a test can
// say what happens in which order.
type topModel struct {
	ctx   context.Context // of all readings
	read  func(context.Context, topQuery) topReading
	onKey func(key string)

	pattern, address string
	interval         time.Duration
	order            string
	width, height    int
	now              time.Time // of this machine, a second ago at most

	query    topQuery // what the screen shows
	underWay bool
	begun    time.Time          // the reading under way
	cancel   context.CancelFunc // of the reading under way
	due      int                // number of the next reading, if one waits for its time

	list    topReading // the last good ones
	one     topReading
	all     []topRow // of list
	waiting int      // in all rows
	shown   []topRow // those that the filter lets through, in order
	renewal renewal
	err     error // why the last reading failed; nil: it did not

	selected string // key of a row; empty: the first
	cursor   int    // where the selected row is, or was
	offset   int    // the first row on the screen, or the first line of one name
	filter   string
	typing   bool
	otherIDs bool // the user has pressed i

	result error // how top ends
}

// renewal is what the readings of one name say about the life of the holder of its mutex.
type renewal struct {
	holder    string
	remaining time.Duration
	at, first time.Time     // server time of the last and the first reading with this holder
	renewed   time.Time     // server time of the last reading that saw a renewal
	from      time.Duration // what was left at first, or after that renewal
}

func newTopModel(f *topFlags, pattern, address string) *topModel {
	const width, height = 80, 24 // until the terminal says its size
	return &topModel{
		ctx: context.Background(), onKey: func(string) {}, pattern: pattern, address: address,
		interval: f.interval.value, order: f.sort, width: width, height: height, now: time.Now(),
	}
}

// The messages of the model.
type (
	topSignal  syscall.Signal // ends top
	topClock   time.Time      // each second
	topDueRead int            // the time of the reading with this number has come
)

// Init begins the first reading.
func (m *topModel) Init() tea.Cmd { return tea.Batch(m.begin(), tick()) }

func tick() tea.Cmd {
	return tea.Tick(time.Second, func(now time.Time) tea.Msg { return topClock(now) })
}

// begin begins a reading, unless one is under way.
func (m *topModel) begin() tea.Cmd {
	if m.underWay {
		return nil
	}
	ctx, cancel := context.WithCancel(m.ctx)
	m.underWay, m.begun, m.cancel = true, m.now, cancel
	m.due++ // a reading that waits for its time does not come
	query := m.query
	return func() tea.Msg {
		defer cancel()
		return m.read(ctx, query)
	}
}

// show makes the screen show something else. A reading of something else is cut off, and the next
// one begins when it has ended.
func (m *topModel) show(q topQuery) tea.Cmd {
	m.query, m.offset, m.err = q, 0, nil
	if m.underWay {
		m.cancel()
		return nil
	}
	return m.begin()
}

// Update takes a message.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case topClock:
		m.now, cmd = time.Time(msg), tick()
	case topReading:
		cmd = m.onReading(&msg)
	case topDueRead:
		if int(msg) == m.due {
			cmd = m.begin()
		}
	case topSignal:
		return m, m.end(&exitError{exitSignal + int(msg), nil})
	case tea.PasteMsg:
		m.typeText(msg.Content)
	case tea.KeyPressMsg:
		m.onKey(msg.String())
		cmd = m.onKeyPress(msg)
	}
	m.arrange()
	m.moveTo(m.cursorNow())
	return m, cmd
}

func (m *topModel) end(result error) tea.Cmd {
	m.result = result
	return tea.Quit
}

// onReading keeps a reading, and plans the next one.
func (m *topModel) onReading(r *topReading) tea.Cmd {
	m.underWay = false
	if r.at.After(m.now) {
		m.now = r.at
	}
	if r.query != m.query { // the user has gone on
		return m.begin()
	}
	m.err = r.err
	if r.err != nil && m.list.at.IsZero() {
		return m.end(r.err) // such as a user who may not list names; Redis did answer before
	}
	switch {
	case r.err != nil:
	case r.query.name == "":
		m.list, m.all, m.waiting = *r, topRows(r.states, r.now), 0
		for i := range m.all {
			m.waiting += m.all[i].waiters
		}
	default:
		m.one = *r
		m.renewal.observe(r)
	}
	m.due++
	due := topDueRead(m.due)
	return tea.Tick(m.pause(r), func(time.Time) tea.Msg { return due })
}

// pause is the time between a reading and the next one. A slow server gets longer ones.
func (m *topModel) pause(r *topReading) time.Duration {
	const times, most = 4, 10 * time.Second
	return max(m.interval, min(times*r.took, most))
}

// observe compares what is left of the lease with the last reading.
func (n *renewal) observe(r *topReading) {
	info := &r.states[0].Lock
	if info.Holder != n.holder {
		*n = renewal{holder: info.Holder, first: r.now, from: info.Remaining}
	} else if info.Remaining > n.remaining {
		n.renewed, n.from = r.now, info.Remaining
	}
	n.remaining, n.at = info.Remaining, r.now
}

// text says whether the holder lives, as far as the readings show it.
func (n *renewal) text(r *topReading) string {
	info := &r.states[0].Lock
	switch {
	case !info.Held() || info.IsKept() || info.Holder != n.holder:
		return ""
	case info.Remaining < 0:
		return "unknown: the lease has no end"
	case (&leaseWatch{from: n.from, left: info.Remaining}).isOverdue():
		return overdueText(n.from-info.Remaining, info.Remaining)
	case !n.renewed.IsZero():
		return "yes: it renewed its lease, seen " + display.Age(r.now.Sub(n.renewed)) + " ago"
	}
	return "not known yet: no renewal for " + display.Age(r.now.Sub(n.first))
}

// onKeyPress is called for each key. Nothing here waits.
func (m *topModel) onKeyPress(press tea.KeyPressMsg) tea.Cmd {
	key := press.String()
	switch key {
	case "ctrl+c":
		return m.end(&exitError{exitSignal + int(syscall.SIGINT), nil})
	case "ctrl+z":
		return tea.Suspend
	}
	if m.typing {
		m.onFilterKey(key, press.Text)
		return nil
	}
	switch key {
	case "q":
		return m.end(nil)
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup", "ctrl+b":
		m.move(-m.bodyHeight())
	case "pgdown", "ctrl+f", "space":
		m.move(m.bodyHeight())
	case "home", "g":
		m.move(-m.length())
	case "end", "G":
		m.move(m.length())
	case "r", "ctrl+l":
		return tea.Batch(tea.ClearScreen, m.begin())
	default:
		if m.query.name != "" {
			return m.onNameKey(key)
		}
		return m.onListKey(key)
	}
	return nil
}

func (m *topModel) onListKey(key string) tea.Cmd {
	switch key {
	case "w":
		m.order = sortWaiters
	case "o":
		m.order = sortOldest
	case "h":
		m.order = sortHeld
	case "n":
		m.order = sortName
	case "/":
		m.typing = true
	case "esc":
		m.filter = ""
	case "enter", "right", "l":
		if len(m.shown) > 0 {
			row := m.shown[m.cursorNow()]
			m.selected = row.key()
			m.one = topReading{}
			m.renewal = renewal{}
			return m.show(topQuery{row.state.Name})
		}
	}
	return nil
}

func (m *topModel) onNameKey(key string) tea.Cmd {
	switch key {
	case "esc", "backspace", "left", "h":
		return m.show(topQuery{})
	case "i":
		m.otherIDs = !m.otherIDs
	}
	return nil
}

// onFilterKey edits the filter.
func (m *topModel) onFilterKey(key, text string) {
	switch key {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-size]
	case "ctrl+u":
		m.filter = ""
	case "up":
		m.move(-1)
	case "down":
		m.move(1)
	default:
		m.typeText(text)
	}
}

func (m *topModel) typeText(text string) {
	const most = 200
	if m.typing && len(m.filter)+len(text) <= most {
		m.filter += text
	}
}

// arrange finds the rows of the list that the filter lets through, in order.
func (m *topModel) arrange() {
	m.shown = m.shown[:0]
	filter := strings.ToLower(display.Safe(m.filter))
	for _, row := range m.all {
		if strings.Contains(strings.ToLower(row.cells[nameCell]), filter) || strings.Contains(strings.ToLower(row.cells[holderCellAt]), filter) {
			m.shown = append(m.shown, row)
		}
	}
	sortRows(m.shown, m.order)
}

// length is how many lines can be moved over.
func (m *topModel) length() int {
	if m.query.name != "" {
		return len(m.nameLines())
	}
	return len(m.shown)
}

// cursorNow returns where the selected row is. If it is gone, the cursor stays where it was.
func (m *topModel) cursorNow() int {
	if m.selected == "" {
		return 0
	}
	if i := slices.IndexFunc(m.shown, func(row topRow) bool { return row.key() == m.selected }); i >= 0 {
		return i
	}
	return max(0, min(m.cursor, len(m.shown)-1))
}

// move moves the cursor of the list, or scrolls one name.
func (m *topModel) move(by int) {
	if m.query.name != "" {
		m.offset = max(0, min(m.offset+by, m.length()-m.bodyHeight()))
		return
	}
	if len(m.shown) == 0 {
		return
	}
	at := max(0, min(m.cursorNow()+by, len(m.shown)-1))
	m.selected = m.shown[at].key()
	m.moveTo(at)
}

// moveTo scrolls the list so that the cursor is on the screen.
func (m *topModel) moveTo(at int) {
	if m.query.name != "" {
		m.offset = max(0, min(m.offset, m.length()-m.bodyHeight()))
		return
	}
	m.cursor = at
	height := m.bodyHeight()
	m.offset = max(min(m.offset, at), at-height+1, 0)
}
