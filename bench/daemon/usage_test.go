package daemon

import (
	"errors"
	"strings"
	"testing"
)

func TestParseMetrics(t *testing.T) {
	m, err := parseMetrics(strings.NewReader(`# HELP go_goroutines x
go_goroutines 12
ticketing_refused_total{reason="a b } c"} 3
ticketing_refused_total{reason="d"} 4
go_memstats_heap_alloc_bytes 1.5e+06
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"go_goroutines": 12, "ticketing_refused_total": 7, metricHeap: 1.5e6} {
		if got, err := m.Get(name); got != want || err != nil {
			t.Errorf("%s = %v, %v; want %v", name, got, err, want)
		}
	}
	if _, err := m.Get("absent"); !errors.Is(err, ErrNoMetric) {
		t.Errorf("absent: %v, want %v", err, ErrNoMetric)
	}
	for _, line := range []string{"novalue\n", "name x\n"} {
		if _, err := parseMetrics(strings.NewReader(line)); err == nil {
			t.Errorf("parseMetrics(%q) took it", line)
		}
	}
}
