package main

import (
	"image/color"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// chart is a chart of a run. It shows a figure of the libraries in some rows.
type chart struct {
	file, title, axis string
	rows              []string
	figure            func(outcome) float64
	log               bool
}

var charts = []chart{
	{"throughput.svg", "Lock and unlock, turns per second", "turns/s", []string{"alone", "own names, 64", "one name, 64", "one name, 4 × 16, 1 ms"}, turns, false},
	{"wait.svg", "The longest wait of one in a hundred", "ms, logarithmic", []string{"own names, 64", "one name, 64", "one name, 4 × 16, 1 ms"}, func(o outcome) float64 { return o.WaitP99 / 1000 }, true},
}

// draw writes the charts whose rows have been measured.
func (t *table) draw(dir string) error {
	for _, c := range charts {
		if err := t.drawOne(c, filepath.Join(dir, c.file)); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) drawOne(c chart, path string) error {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = c.title, c.axis
	p.Legend.Top = true
	const bar = vg.Length(9)
	var names []string
	for _, m := range t.Cells {
		if slices.Contains(names, m.Library) || !slices.Contains(c.rows, m.Row) {
			continue
		}
		names = append(names, m.Library)
	}
	for i, name := range names {
		values := make(plotter.Values, len(c.rows))
		for j, row := range c.rows {
			values[j] = t.figure(row, name, c.figure)
			if c.log {
				values[j] = math.Max(math.Log10(values[j]*10), 0) // a tenth of a millisecond has no height
			}
		}
		bars, err := plotter.NewBarChart(values, bar)
		if err != nil {
			return err
		}
		bars.Offset = bar * vg.Length(float64(i)-float64(len(names)-1)/2)
		bars.Color, bars.LineStyle.Width = paint(name, i), 0
		p.Add(bars)
		p.Legend.Add(name, bars)
	}
	if c.log {
		p.Y.Tick.Marker = plot.ConstantTicks([]plot.Tick{{Value: 0, Label: "0.1"}, {Value: 1, Label: "1"}, {Value: 2, Label: "10"}, {Value: 3, Label: "100"}, {Value: 4, Label: "1000"}})
		p.Y.Max = math.Max(p.Y.Max, 4)
	}
	p.Y.Min = 0
	p.NominalX(c.rows...)
	return p.Save(28*vg.Centimeter, 12*vg.Centimeter, path)
}

func (t *table) figure(row, library string, figure func(outcome) float64) float64 {
	for _, m := range t.Cells {
		if m.Row == row && m.Library == library {
			v, _ := m.median(figure)
			return v
		}
	}
	return 0
}

// paint: this library is red, the floor is grey, and the others have colours of their own.
func paint(name string, i int) color.Color {
	switch {
	case strings.HasPrefix(name, "redlatch"):
		return color.RGBA{R: 200, G: uint8(40 + 50*(i%4)), B: 40, A: 255}
	case name == floors.name:
		return color.Gray{Y: 150}
	}
	others := []color.RGBA{{31, 119, 180, 255}, {44, 160, 44, 255}, {148, 103, 189, 255}, {140, 86, 75, 255}, {23, 190, 207, 255}, {188, 189, 34, 255}}
	return others[i%len(others)]
}
