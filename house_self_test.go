package ticketing_test

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// parseInto parses a file again into a set that it shares with others.
func parseInto(fset *token.FileSet, s *source) (*source, error) {
	tree, err := parser.ParseFile(fset, s.path, s.text, parser.ParseComments|parser.SkipObjectResolution)
	return &source{s.path, s.text, fset, tree}, err
}

func longFunction(lines int) string {
	return "package p\nfunc f() {\n" + strings.Repeat("\tf()\n", lines-2) + "}\n"
}

// TestRulesHaveTeeth tries each rule on a snippet that breaks it, and on one that is close to it and fine.
func TestRulesHaveTeeth(t *testing.T) {
	const gnet, raft = `import _ "github.com/panjf2000/gnet/v2"`, `import _ "github.com/hashicorp/raft"`
	for _, c := range []struct {
		rule, path, bad, good string
	}{
		{"imports", "codec/x.go", "package codec\nimport _ \"" + module + "locktable\"", "package codec\nimport _ \"bytes\""},
		{"imports", "locktable/x.go", "package locktable\nimport _ \"golang.org/x/sys/unix\"", "package locktable\nimport _ \"errors\""},
		{"imports", "server/x.go", "package server\nimport _ \"" + module + "bench/load\"", "package server\nimport _ \"" + module + "codec\""},
		{"imports", "server/x.go", "package server\n" + gnet, "package server\nimport _ \"github.com/prometheus/client_golang/prometheus\""},
		{"imports", "bench/load/x.go", "package load\nimport _ \"" + module + "server\"", "package load\nimport _ \"" + module + "bench/daemon\""},
		{"imports", "codec/x_test.go", "package codec\nimport _ \"" + module + "server\"", "package codec_test\nimport _ \"" + module + "codec\""},
		{"imports", "eventloop/x.go", "package eventloop\nimport _ \"github.com/panjf2000/gnet/v23\"", "package eventloop\n" + gnet},
		{"sole importers", "server/x.go", "package server\n" + gnet, "package server\nimport _ \"net\""},
		{"sole importers", "eventloop/x.go", "package eventloop\n" + raft, "package eventloop\n" + gnet},
		{"sole importers", "server/x_test.go", "package server\n" + raft, "package server\nimport _ \"net\""},
		{"purity", "codec/x.go", "package codec\nfunc f() { go f() }", "package codec\nfunc f() { f() }"},
		{"purity", "locktable/x.go", "package locktable\nimport \"time\"\nvar x = time.Now()", "package locktable\nimport \"time\"\nvar x = time.Second"},
		{"purity", "locktable/x.go", "package locktable\nimport _ \"sync\"", "package locktable\nimport _ \"sort\""},
		{"purity", "locktable/x.go", "package locktable\nvar x chan int", "package locktable\nvar x []int"},
		{"lengths", "p/x.go", longFunction(maxFunctionLines + 1), longFunction(maxFunctionLines)},
		{"lengths", "p/x.go", "package p\n" + strings.Repeat("\n", maxFileLines), "package p\n" + strings.Repeat("\n", maxFileLines-1)},
		{"lengths", "cmd/p/x.go", "package p\n" + strings.Repeat("\n", maxCommandLines-1), "package p\n" + strings.Repeat("\n", maxCommandLines-2)},
		{"exported names have comments", "p/x.go", "package p\nfunc F() {}", "package p\n\n// F does.\nfunc F() {}"},
		{"exported names have comments", "p/x.go", "package p\ntype T int", "package p\ntype t int"},
		{"exported names have comments", "p/x.go", "package p\n\n// T is.\ntype T int\nfunc (t *T) M() {}", "package p\ntype t int\nfunc (t) M() {}"},
		{"exported names have comments", "p/x.go", "package p\nvar (\nA = 1\n)", "package p\nvar (\nA = 1 // one\n)"},
		{"exported names have comments", "p/x.go", "package p\nconst A = 1", "package p\nconst (\nA T = iota\nB\n)"},
		{"names", "p/x.go", "package p\ntype lockManager struct{}", "package p\ntype locks struct{}"},
		{"names", "p/x.go", "package p\nfunc requestHandler() {}", "package p\nfunc request() {}"},
		{"names", "x/x.go", "package util", "package useful"},
		{"no sleep in tests", "p/x_test.go", "package p\nimport \"time\"\nfunc f() { time.Sleep" + "(1) }",
			"package p\nimport (\"time\"; \"testing/synctest\")\nvar _ = synctest.Wait\nfunc f() { time.Sleep" + "(1) }"},
		{"no promises", "p/x.go", "package p\n// TO" + "DO: all of it", "package p\n// To do this, call f."},
		{"no promises", "p/x.go", "package p\n// This will do for" + " now.", "package p\n// It is nowhere."},
		{"goroutines end", "p/x.go", "package p\nfunc f() {\n\tgo f()\n}", "package p\nfunc f() {\n\t// Ends with its caller.\n\tgo f()\n}"},
		{"goroutines end", "p/x.go", "package p\nfunc f() {\n\t// Does f.\n\tgo f()\n}", "package p\nfunc f() {\n\tgo f() // until quit\n}"},
	} {
		for _, try := range []struct {
			text string
			want bool
		}{{c.bad, true}, {c.good, false}} {
			s, err := parseSource(c.path, try.text)
			if err != nil {
				t.Fatalf("%s: %v\n%s", c.rule, err, try.text)
			}
			found := false
			for _, r := range rules {
				if r.name == c.rule {
					found = true
					if got := r.check(s); (len(got) > 0) != try.want {
						t.Errorf("%s says %q of\n%.200s", c.rule, got, try.text)
					}
				}
			}
			if !found {
				t.Errorf("no rule is called %q", c.rule)
			}
		}
	}
}

func TestMapOrderRuleHasTeeth(t *testing.T) {
	for text, want := range map[string]int{
		"package p\nfunc f(m map[int]int) {\n\tfor range m {\n\t}\n}":                                                            1,
		"package p\ntype set map[int]bool\nfunc f(s struct{ m set }) {\n\tfor k := range s.m {\n\t\t_ = k\n\t}\n}":               1,
		"package p\nimport \"maps\"\nfunc f(m map[int]int) {\n\tfor range maps.Keys(m) {\n\t}\n}":                                1,
		"package p\nfunc f(m map[int]int) {\n\t// " + orderMark + " they are counted.\n\tfor range m {\n\t}\n}":                  0,
		"package p\nfunc f(m []int) {\n\tfor range m {\n\t}\n}":                                                                  0,
		"package p\nfunc f(m map[int]int) int { return m[1] }":                                                                   0,
		"package p\nfunc f(m map[int]int) {\n\t// Something else.\n\tfor range m {\n\t}\n\tfor range 3 {\n\t}\n}":                1,
		"package p\nfunc f(m map[int]int) {\n\tfor range 3 { // " + orderMark + " not about a map\n\t}\n\tfor range m {\n\t}\n}": 1,
	} {
		s, err := parseSource("p/x.go", text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := mapRanges([]*source{s})
		if err != nil || len(got) != want {
			t.Errorf("%q, %v; want %d complaints of\n%s", got, err, want, text)
		}
	}
}

func TestOtherRulesHaveTeeth(t *testing.T) {
	bare, _ := parseSource("p/x.go", "package p")
	told, _ := parseSource("q/x.go", "// Package q is.\npackage q")
	inTest, _ := parseSource("p/x_test.go", "// Package p is.\npackage p")
	if got := packagesWithoutComment([]*source{bare, told, inTest}); len(got) != 1 || !strings.HasPrefix(got[0], "p:") {
		t.Errorf("package comments: %q, want p alone", got)
	}
	for text, want := range map[string]int{
		"cd /" + "work/x": 1, "see \"/" + "home/me/x\"": 1, "=/" + "root/go": 1, "a/" + "work/x": 0, "the /" + "work of": 0, "/usr/bin": 0,
	} {
		if got := machinePaths("x", text); len(got) != want {
			t.Errorf("paths in %q: %q, want %d", text, got, want)
		}
	}
	if _, ok := permittedFor("nowhere"); ok {
		t.Error("a folder without a line has one")
	}
	if list, ok := permittedFor("bench/load/deep"); !ok || len(list) == 0 {
		t.Error("a folder does not fall under the line of the folder above")
	}
}
