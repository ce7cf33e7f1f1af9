package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The whole command, short: every figure of the table is there, and no run was void.
func TestQuick(t *testing.T) {
	c := command{runs: 1, scale: quick, readBuffer: 64 << 10, write: filepath.Join(t.TempDir(), "figures.md")}
	if err := os.WriteFile(c.write, []byte("# Before\n"+startMark+"\nold\n"+endMark+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(c.write)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []*definition{rate16, rate48, cpu16, acquire1, handOver, ballastCPU, perWaiter, perConnection} {
		if !strings.Contains(string(text), "| "+d.load+" | "+d.figure+" | ") {
			t.Errorf("no row for %s, %s in\n%s", d.load, d.figure, text)
		}
	}
}

func TestMet(t *testing.T) {
	least := &definition{load: "a", goal: 0.8, atLeast: true}
	most := &definition{load: "b", goal: 1.6}
	absolute := &definition{load: "c", goal: 150, absolute: true}
	cases := []struct {
		d                  *definition
		product, reference []float64
		met                bool
		ratio              string
	}{
		{least, []float64{8, 1, 9}, []float64{10, 10, 10}, true, "0.80 (0.10–0.90)"},
		{least, []float64{7.9, 7.9, 20}, []float64{10, 10, 10}, false, "0.79 (0.79–2.00)"},
		{most, []float64{16, 20}, []float64{10, 20}, true, "1.30 (1.00–1.60)"},
		{most, []float64{17}, []float64{10}, false, "1.70 (1.70–1.70)"},
		{absolute, []float64{150}, []float64{0}, true, "–"},
		{absolute, []float64{151}, []float64{0}, false, "–"},
	}
	for _, c := range cases {
		r := newReport(false)
		for i := range c.product {
			r.add(c.d, c.product[i], c.reference[i])
		}
		if got := r.rows[0].met(); got != c.met {
			t.Errorf("%s of %v to %v: met %v, want %v", c.d.load, c.product, c.reference, got, c.met)
		}
		if got := spread(r.rows[0].ratios, 2); got != c.ratio {
			t.Errorf("%s of %v to %v: ratio %s, want %s", c.d.load, c.product, c.reference, got, c.ratio)
		}
	}
}

func TestReplaceFigures(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a\n" + startMark + "\nold\n" + endMark + "\nz\n")
	if err := replaceFigures(file, "new\n"); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(file); string(got) != "a\n"+startMark+"\nnew\n"+endMark+"\nz\n" {
		t.Errorf("document is %q", got)
	}
	write("no marks")
	if err := replaceFigures(file, "new\n"); !errors.Is(err, errNoMarks) {
		t.Errorf("without marks: %v, want %v", err, errNoMarks)
	}
}
