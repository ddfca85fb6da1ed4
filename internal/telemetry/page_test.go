package telemetry

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md anew")

const (
	tableBegins = "<!-- The table is made of internal/telemetry: go test ./internal/telemetry -update -->\n"
	tableEnds   = "<!-- End of the table. -->\n"
)

var typeNames = map[Type]string{Counter: "counter", Histogram: "histogram", UpDownCounter: "gauge", Gauge: "gauge"}

// table returns the table of all instruments.
func table() string {
	var text strings.Builder
	text.WriteString("\n| Prometheus | OpenTelemetry | type | labels | |\n|---|---|---|---|---|\n")
	for id := range Count {
		i := &Instruments[id]
		var labels []string
		for _, label := range i.Labels {
			labels = append(labels, "`"+PrometheusLabel(label)+"`")
		}
		if i.IsNamed {
			labels = append(labels, "(`"+NameKey+"`)")
		}
		kind := typeNames[i.Type]
		if i.Type == UpDownCounter {
			kind += " (up-down counter)"
		}
		fmt.Fprintf(&text, "| `%s` | `%s`, `%s` | %s | %s | %s |\n", i.PrometheusName(), i.Name, i.Unit, kind, strings.Join(labels, ", "), i.Help)
	}
	text.WriteString("\n")
	return text.String()
}

func TestThePageHasTheTableOfAllInstruments(t *testing.T) {
	name := filepath.Join("..", "..", "docs", "metrics.md")
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(page), tableBegins)
	require.True(t, found)
	now, after, found := strings.Cut(rest, tableEnds)
	require.True(t, found)
	if *update {
		now = table()
		require.NoError(t, os.WriteFile(name, []byte(before+tableBegins+now+tableEnds+after), 0o644)) //nolint:gosec // a page
	}
	require.Equal(t, strings.Split(table(), "\n"), strings.Split(now, "\n"))
}
