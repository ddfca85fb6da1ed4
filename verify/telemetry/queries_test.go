package telemetry_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

const (
	boardFile  = "../../redlatchprom/grafana/redlatch.json"
	alertsFile = "../../redlatchprom/alerts/redlatch.yaml"
)

// query is one query of the board or the alerts, with the place where it stands.
type query struct{ place, text string }

// boardQueries returns the queries of the board, with values for its variables.
func boardQueries(t *testing.T) (queries []query) {
	t.Helper()
	text, err := os.ReadFile(boardFile)
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			Title       string
			Type        string
			Description string
			Targets     []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*")
	for _, panel := range board.Panels {
		require.Equal(t, panel.Type == "row", len(panel.Targets) == 0, panel.Title)
		for _, target := range panel.Targets {
			expr := variables.Replace(target.Expr)
			require.NotContains(t, expr, "$", panel.Title)
			queries = append(queries, query{panel.Title, expr})
		}
	}
	require.Greater(t, len(queries), 20)
	return queries
}

func alertRules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(alertsFile, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	require.Len(t, groups.Groups, 1)
	require.NotEmpty(t, groups.Groups[0].Rules)
	return groups.Groups[0].Rules
}

func alertQueries(t *testing.T) (queries []query) {
	t.Helper()
	for _, rule := range alertRules(t) {
		queries = append(queries, query{rule.Alert, rule.Expr})
	}
	return queries
}

// scrape has the series of a scrape, with the labels that Prometheus adds to each.
type scrape map[string][]labels.Labels

func newScrape(t *testing.T, families map[string]*dto.MetricFamily) scrape {
	t.Helper()
	s := scrape{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			b := labels.NewBuilder(labels.FromStrings("job", "shop", "instance", "shop-1"))
			for _, l := range m.GetLabel() {
				b.Set(l.GetName(), l.GetValue())
			}
			if f.GetType() != dto.MetricType_HISTOGRAM {
				s[name] = append(s[name], b.Labels())
				continue
			}
			s[name+"_count"], s[name+"_sum"] = append(s[name+"_count"], b.Labels()), append(s[name+"_sum"], b.Labels())
			s[name+"_bucket"] = append(s[name+"_bucket"], b.Set("le", "+Inf").Labels())
		}
	}
	return s
}

// find returns the series that a selector finds.
func (s scrape) find(selector *parser.VectorSelector) (found []labels.Labels) {
	for _, one := range s[selector.Name] {
		matches := func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel || m.Matches(one.Get(m.Name)) }
		if !slices.ContainsFunc(selector.LabelMatchers, func(m *labels.Matcher) bool { return !matches(m) }) {
			found = append(found, one)
		}
	}
	return found
}

// check checks that each selector of a query finds series, and each word of its matchers too, and
// that these have the labels by which the query groups.
func (s scrape) check(t *testing.T, q query, optional ...string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(q.text)
	require.NoError(t, err, q.place)
	selectors := 0
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		selectors++
		found := s.find(selector)
		require.NotEmpty(t, found, "%s: no series: %s", q.place, selector)
		for _, m := range selector.LabelMatchers {
			for _, word := range m.SetMatches() {
				has := func(one labels.Labels) bool { return m.Name == model.MetricNameLabel || one.Get(m.Name) == word }
				require.True(t, slices.ContainsFunc(found, has), "%s: no series with %s=%q", q.place, m.Name, word)
			}
		}
		for _, above := range path {
			aggregate, ok := above.(*parser.AggregateExpr)
			if !ok {
				continue
			}
			require.False(t, aggregate.Without, "%s: labels of the scope would stay", q.place)
			for _, label := range aggregate.Grouping {
				if !slices.Contains(optional, label) {
					require.True(t, found[0].Has(label), "%s: %s has no label %s", q.place, selector, label)
				}
			}
		}
		return nil
	})
	require.Positive(t, selectors, q.place)
}

// Each query of the board and of the alerts finds the series of both modules that it asks for.
// Without labels for names, queries that group by name have one group.
func TestTheQueriesFindTheirSeries(t *testing.T) {
	t.Parallel()
	queries := append(boardQueries(t), alertQueries(t)...)
	for name, label := range map[string]func(string) string{
		"without names": nil,
		"with names":    func(name string) string { return strings.Split(name, ":")[0] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBoth(t, label)
			b.play(t)
			for _, s := range []scrape{newScrape(t, gather(t, b.promReg)), newScrape(t, gather(t, b.otelReg))} {
				for _, q := range queries {
					if label == nil {
						s.check(t, q, "name")
					} else {
						s.check(t, q)
					}
				}
			}
		})
	}
}

// The board shows each metric.
func TestTheBoardHasEachMetric(t *testing.T) {
	t.Parallel()
	all := ""
	for _, q := range boardQueries(t) {
		all += q.text + "\n"
	}
	b := newBoth(t, nil)
	b.play(t)
	for name := range gather(t, b.promReg) {
		require.Regexp(t, regexp.QuoteMeta(name)+`(_bucket|_sum|_count)?[{\[]`, all)
	}
}

// Texts of alerts have only labels that their queries keep.
func TestTheAlertsSayWhatTheirQueriesKeep(t *testing.T) {
	t.Parallel()
	for _, rule := range alertRules(t) {
		require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		require.NotEmpty(t, rule.Annotations["description"], rule.Alert)
		require.Contains(t, []string{"critical", "warning"}, rule.Labels["severity"], rule.Alert)
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
		require.NoError(t, err)
		var kept []string
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if aggregate, ok := node.(*parser.AggregateExpr); ok {
				kept = append(kept, aggregate.Grouping...)
			}
			return nil
		})
		for _, used := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(rule.Annotations["summary"]+rule.Annotations["description"], -1) {
			require.Contains(t, kept, used[1], rule.Alert)
		}
	}
}

// The page names each alert, and no others.
func TestThePageNamesTheAlerts(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	require.NoError(t, err)
	var named []string
	for _, name := range regexp.MustCompile("(?m)^\\| `(Redlatch\\w+)` \\|").FindAllStringSubmatch(string(page), -1) {
		named = append(named, name[1])
	}
	var rules []string
	for _, rule := range alertRules(t) {
		rules = append(rules, rule.Alert)
	}
	require.ElementsMatch(t, rules, named)
}
