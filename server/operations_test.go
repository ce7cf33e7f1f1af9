package server

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of docs/OPERATIONS.md anew")

const operations = "../docs/OPERATIONS.md"

func settingsTable() string {
	var b strings.Builder
	b.WriteString("| setting | default | allowed | meaning |\n| --- | --- | --- | --- |\n")
	for i := range table {
		r := &table[i]
		def := r.defaultText()
		if r.shown == "" && r.start != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.name, def, r.allowed, r.help)
	}
	return b.String()
}

func metricsTable() string {
	var b strings.Builder
	b.WriteString("| metric | labels | meaning |\n| --- | --- | --- |\n")
	for _, m := range metrics {
		fmt.Fprintf(&b, "| `%s%s` | %s | %s |\n", metricPrefix, m.name, strings.Join(m.labels, ", "), m.help)
	}
	return b.String()
}

// The tables of docs/OPERATIONS.md are those of the code. With -rewrite they are made so.
func TestOperationsTables(t *testing.T) {
	content, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(content)
	for name, want := range map[string]string{"settings": settingsTable(), "metrics": metricsTable()} {
		begin, end := "<!-- table: "+name+" -->\n", "<!-- end -->\n"
		before, rest, ok := strings.Cut(doc, begin)
		got, after, closed := strings.Cut(rest, end)
		switch {
		case !ok || !closed:
			t.Errorf("%s has no place for the table of %s", operations, name)
		case got == want:
		case *rewrite:
			doc = before + begin + want + end + after
		default:
			t.Errorf("the table of %s in %s is not the one of the code; go test ./server -run TestOperationsTables -rewrite", name, operations)
		}
	}
	if *rewrite && doc != string(content) {
		if err := os.WriteFile(operations, []byte(doc), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
