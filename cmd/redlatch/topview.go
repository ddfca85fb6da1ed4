package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/redlatch/redlatch/internal/catalog"
	"github.com/redlatch/redlatch/internal/display"
	"github.com/redlatch/redlatch/lock"
)

// Styles are attributes and the eight colours of each terminal. The terminal library drops the
// colours if NO_COLOR is set, so no meaning may be in a colour alone.
const (
	bold    = "1"
	faint   = "2"
	reverse = "7"
	red     = "1;31"
	yellow  = "33"
	heading = "1;4"
)

func styled(style, text string) string { return "\x1b[" + style + "m" + text + "\x1b[m" }

// fit returns text that is exactly so many columns wide. The text has no control characters.
func fit(text string, width int) string {
	text = ansi.Truncate(text, width, "…")
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

// View returns the screen.
func (m *topModel) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

const (
	linesAbove = 3 // title, connection, header of the table
	linesBelow = 1 // help
)

// bodyHeight is how many rows of the list, or lines of one name, fit.
func (m *topModel) bodyHeight() int {
	above := linesAbove
	if m.query.name != "" {
		above-- // no header of a table
	}
	return max(1, m.height-above-linesBelow)
}

func (m *topModel) lines() []string {
	lines := []string{m.titleLine(), m.stateLine()}
	if m.query.name != "" {
		lines = append(lines, m.nameBody()...)
	} else {
		lines = append(lines, m.listBody()...)
	}
	if last := m.height - linesBelow; len(lines) > last {
		lines = lines[:max(last, 0)]
	}
	for len(lines) < m.height-linesBelow {
		lines = append(lines, "")
	}
	return append(lines, m.helpLine())
}

func (m *topModel) titleLine() string {
	parts := []string{"redlatch top", display.Safe(m.address)}
	switch {
	case m.query.name != "":
		parts = append(parts, display.Safe(m.query.name))
	case !m.list.at.IsZero():
		count := fmt.Sprintf("%d names, %d wait", len(m.list.states), m.waiting)
		if m.list.truncated {
			count = fmt.Sprintf("more than %d names (--limit)", len(m.list.states))
		}
		parts = append(parts, count, "by "+m.order)
		if m.pattern != "" {
			parts = append(parts, display.Safe(m.pattern))
		}
	}
	return styled(reverse, fit(strings.Join(parts, "  "), m.width))
}

// onScreen is the reading on the screen.
func (m *topModel) onScreen() *topReading {
	if m.query.name != "" {
		return &m.one
	}
	return &m.list
}

// stateLine says how old the screen is, and why.
func (m *topModel) stateLine() string {
	const slow = 2 * time.Second // a reading that takes longer is worth a word
	last := m.onScreen()
	waited := m.now.Sub(m.begun)
	switch {
	case m.err != nil:
		text := "no reading: "
		if !last.at.IsZero() {
			text = "no reading for " + seconds(m.now.Sub(last.at)) + ", this is the last one: "
		}
		return styled(red, ansi.Truncate(text+display.Safe(m.err.Error()), m.width, "…"))
	case m.underWay && waited >= slow && last.at.IsZero():
		return styled(red, fit("reading for "+seconds(waited), m.width))
	case m.underWay && waited >= slow:
		return styled(red, fit("Redis is slow: reading for "+seconds(waited)+", the screen is "+seconds(m.now.Sub(last.at))+" old", m.width))
	case last.at.IsZero():
		return styled(faint, fit("reading", m.width))
	}
	text := fmt.Sprintf("read in %s, every %s", max(last.took.Round(time.Millisecond), time.Millisecond), m.pause(last).Round(100*time.Millisecond))
	if old := m.now.Sub(last.at); old >= slow {
		text += "; " + seconds(old) + " ago, r reads now"
	}
	return styled(faint, fit(text, m.width))
}

// seconds returns a whole number of seconds, or an age in larger units.
func seconds(d time.Duration) string {
	if d = max(d, 0).Truncate(time.Second); d < time.Minute {
		return d.String()
	}
	return display.Age(d)
}

func (m *topModel) helpLine() string {
	switch {
	case m.typing:
		return fit("/"+display.Safe(m.filter)+"_   enter keeps, esc drops", m.width)
	case m.query.name != "":
		ids := "whole ids"
		if m.wholeIDs() {
			ids = "short ids"
		}
		return styled(faint, fit("q quit  esc back  j k scroll  i "+ids, m.width))
	}
	help := "q quit  enter open  / filter  j k move  sort: w waiters o oldest h held n name"
	if m.filter != "" {
		help = "filter: " + display.Safe(m.filter) + "  esc all  " + help
	}
	return styled(faint, fit(help, m.width))
}

// topColumn is a column of the list. A narrow screen shows the columns with a low rank only.
type topColumn struct {
	cell  int // of a row
	width int
	rank  int
	right bool
}

const (
	gap          = 2
	leastName    = 20
	nameCell     = 0
	holderCellAt = 2
	waitersCell  = 5
)

var topColumns = []topColumn{
	{cell: nameCell},
	{cell: 1, width: 9, rank: 5},
	{cell: holderCellAt, rank: 4},
	{cell: 3, width: 6, rank: 2, right: true},
	{cell: 4, width: 6, rank: 3, right: true},
	{cell: waitersCell, width: 7, right: true},
	{cell: 6, width: 6, rank: 1, right: true},
}

// columns returns the columns for a width. The name and the holder share what the others leave.
func columns(width int) []topColumn {
	const most, leastHolder = 5, 20
	for rank := most; ; rank-- {
		var shown []topColumn
		rest, holders := width-1, 0 // for the mark of the selected row
		for _, c := range topColumns {
			if c.rank > rank {
				continue
			}
			if len(shown) > 0 {
				rest -= gap
			}
			if c.cell == holderCellAt {
				holders++
			}
			rest -= c.width
			shown = append(shown, c)
		}
		if rest < leastName+holders*leastHolder && rank > 0 {
			continue
		}
		for i := range shown {
			switch shown[i].cell {
			case nameCell:
				shown[i].width = max(rest*(2-holders)/2, 1)
			case holderCellAt:
				shown[i].width = rest - rest/2
			}
		}
		return shown
	}
}

func rowText(cells []string, shown []topColumn) string {
	var parts []string
	for _, c := range shown {
		text := ""
		if c.cell < len(cells) {
			text = ansi.Truncate(cells[c.cell], c.width, "…")
		}
		space := strings.Repeat(" ", max(0, c.width-ansi.StringWidth(text)))
		if c.right {
			text = space + text
		} else {
			text += space
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, strings.Repeat(" ", gap))
}

func (m *topModel) listBody() []string {
	rows, shown := m.shown, columns(m.width)
	lines := []string{styled(heading, fit(" "+rowText(listHeader, shown), m.width))}
	if len(rows) == 0 && !m.list.at.IsZero() {
		text := "Nobody holds or waits for a lock that top can see. --all and --hashes show more."
		if m.list.truncated { // those that it read are free by now
			text = "There are more names than --limit."
		}
		if m.filter != "" {
			text = "No name and no holder contains the filter."
		}
		return append(lines, "", fit(" "+text, m.width))
	}
	at := m.cursorNow()
	for i := m.offset; i < len(rows) && i < m.offset+m.bodyHeight(); i++ {
		text := rowText(rows[i].cells, shown)
		switch {
		case i == at:
			text = styled(reverse, fit(">"+text, m.width))
		case rows[i].state.Err != nil:
			text = styled(red, fit(" "+text, m.width))
		case rows[i].waiters > 0:
			text = styled(yellow, fit(" "+text, m.width))
		default:
			text = fit(" "+text, m.width)
		}
		lines = append(lines, text)
	}
	return lines
}

// nameState returns the state of the name on the screen. Until its own reading comes, that of the
// list has the most.
func (m *topModel) nameState() (*catalog.State, *topReading) {
	if !m.one.at.IsZero() {
		return &m.one.states[0], &m.one
	}
	for i := range m.list.states {
		if m.list.states[i].Name == m.query.name {
			return &m.list.states[i], &m.list
		}
	}
	return nil, nil
}

// nameLines is what redlatch show prints.
func (m *topModel) nameLines() []string {
	state, from := m.nameState()
	if state == nil || state.Err != nil {
		return nil
	}
	alive := ""
	if from == &m.one {
		alive = m.renewal.text(&m.one)
	}
	var text strings.Builder
	if !m.wholeIDs() {
		state = withShortIDs(state)
	}
	if err := writeState(&text, state, alive, from.now); err != nil {
		return []string{display.Safe(err.Error())}
	}
	return strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
}

// wholeIDs reports whether ids are shown whole. On a narrow screen they would push the descriptions
// out, so the key i shows them.
func (m *topModel) wholeIDs() bool {
	const wide = 110
	return m.width >= wide != m.otherIDs
}

// withShortIDs shortens the ids in the tables. The holder of a mutex has a line of its own.
func withShortIDs(s *catalog.State) *catalog.State {
	c := *s
	c.Waiters, c.PermitWaiters, c.Permits.Holders = slices.Clone(s.Waiters), slices.Clone(s.PermitWaiters), slices.Clone(s.Permits.Holders)
	for _, waiters := range [][]lock.Waiter{c.Waiters, c.PermitWaiters} {
		for i := range waiters {
			waiters[i].ID = shortID(waiters[i].ID)
		}
	}
	for i := range c.Permits.Holders {
		c.Permits.Holders[i].ID = shortID(c.Permits.Holders[i].ID)
	}
	return &c
}

// shortID keeps the beginning of the id of a client, and the number.
func shortID(id string) string {
	const begin = 8
	at := strings.LastIndexByte(id, ':')
	if at <= begin {
		return id
	}
	return id[:begin] + "…" + id[at:]
}

func (m *topModel) nameBody() (lines []string) {
	all := m.nameLines()
	for i := m.offset; i < len(all) && i < m.offset+m.bodyHeight(); i++ {
		line := ansi.Truncate(all[i], m.width, "…")
		switch {
		case strings.HasPrefix(all[i], "mutex:"), strings.HasPrefix(all[i], "semaphore:"):
			line = styled(bold, line)
		case strings.Contains(all[i], "  crashed"):
			line = styled(red, line)
		}
		lines = append(lines, line)
	}
	return lines
}
