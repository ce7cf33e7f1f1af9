// Package ticketing_test holds the rules of the house: who may import whom, which packages are pure, and how code is
// written. They are tests, so that a rule that is broken breaks the build. Each rule is tried on a snippet that breaks it
// (house_self_test.go), so that no rule can pass for want of teeth.
package ticketing_test

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"testing"
)

const module = "github.com/ticketing-go/ticketing/"

// permitted is who may import whom, besides the standard library: the table of the houses in docs/ARCHITECTURE.md. A
// folder without a line of its own falls under the line of the folder above. It is policy: a new line needs a reason, not
// a failing build.
var permitted = map[string][]string{
	"codec":     {},
	"locktable": {},
	"ring":      {},
	"eventloop": {
		"codec", "github.com/panjf2000/gnet/v2", "github.com/valyala/bytebufferpool", "golang.org/x/sys/unix",
	},
	"raftglue": {
		"locktable", "github.com/hashicorp/raft", "github.com/hashicorp/raft-wal", "github.com/hashicorp/go-hclog",
		"golang.org/x/sys/unix", "github.com/lni/goutils/syncutil",
	},
	"server": {
		"codec", "eventloop", "locktable", "raftglue", "ring", "github.com/lni/goutils/syncutil",
		"github.com/prometheus/client_golang", "github.com/valyala/bytebufferpool", "golang.org/x/net/netutil",
		"golang.org/x/sys/unix",
	},
	"server/conformance": {"server", "codec"},
	"client":             {"codec"},
	"bench":              {"bench", "client", "codec", "golang.org/x/sys/unix"},
	"bench/history":      {"github.com/anishathalye/porcupine"},
	"bench/ceiling":      {"codec", "bench/frames", "github.com/panjf2000/gnet/v2", "github.com/hashicorp/raft", "github.com/hashicorp/go-hclog"},
	"cmd/ticketingd":     {"server"},
	"cmd/ticketing":      {"server", "client", "bench", "raftglue"}, // init and members speak to the peer port
	".":                  {},
}

// permittedInTests is what test files may import besides.
var permittedInTests = []string{
	"github.com/lni/goutils/leaktest", "github.com/anishathalye/porcupine", "github.com/prometheus/client_golang/prometheus/testutil",
	"github.com/prometheus/common", "github.com/prometheus/client_model", "golang.org/x/sys/unix",
}

// soleImporters says it once more for the two that everything hangs on: whoever bends the table meets this.
var soleImporters = map[string][]string{
	"github.com/panjf2000/gnet": {"eventloop", "bench/ceiling"},
	"github.com/hashicorp/raft": {"raftglue", "bench"},
}

// source is one file of Go.
type source struct {
	path string // from the root of the repository, with slashes
	text string
	fset *token.FileSet
	tree *ast.File
}

func (s *source) dir() string          { return path.Dir(s.path) }
func (s *source) isTest() bool         { return strings.HasSuffix(s.path, "_test.go") }
func (s *source) line(p token.Pos) int { return s.fset.Position(p).Line }
func (s *source) in(folder string) bool {
	return s.dir() == folder || strings.HasPrefix(s.path, folder+"/")
}

func (s *source) at(p token.Pos, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: ", s.path, s.line(p)) + fmt.Sprintf(format, args...)
}

func parseSource(name, text string) (*source, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return &source{name, text, fset, tree}, err
}

// texts are all files that people write, by path from the root.
func texts(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == ".git" || d.Name() == "testdata" || d.Name() == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		ext := path.Ext(name)
		if !d.Type().IsRegular() || ext == ".sum" || ext == ".gem" {
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if !strings.Contains(string(content), "\x00") {
			found[filepath.ToSlash(name)] = string(content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func sources(t *testing.T) []*source {
	t.Helper()
	var all []*source
	for name, text := range texts(t) {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		s, err := parseSource(name, text)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		all = append(all, s)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].path < all[j].path })
	if len(all) < 50 {
		t.Fatalf("only %d files of Go found: the walk is broken", len(all))
	}
	return all
}

// TestHouse holds every file of Go against every rule.
func TestHouse(t *testing.T) {
	all := sources(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, s := range all {
				for _, complaint := range r.check(s) {
					t.Error(complaint)
				}
			}
		})
	}
}

func TestEveryPackageHasAComment(t *testing.T) {
	for _, complaint := range packagesWithoutComment(sources(t)) {
		t.Error(complaint)
	}
}

func TestNoMapOrderReachesTheTable(t *testing.T) {
	var files []*source
	for _, s := range sources(t) {
		built, err := build.Default.MatchFile("locktable", path.Base(s.path)) // one of a pair of files with build tags
		if s.dir() == "locktable" && !s.isTest() && built && err == nil {
			files = append(files, s)
		}
	}
	complaints, err := mapRanges(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, complaint := range complaints {
		t.Error(complaint)
	}
}

func TestNoPathOfOneMachine(t *testing.T) {
	for name, text := range texts(t) {
		for _, complaint := range machinePaths(name, text) {
			t.Error(complaint)
		}
	}
}

// TestFoldersHaveALine fails where a new folder is under no line of the table.
func TestFoldersHaveALine(t *testing.T) {
	for _, s := range sources(t) {
		if _, ok := permittedFor(s.dir()); !ok {
			t.Errorf("%s: the import table has no line for %s", s.path, s.dir())
		}
	}
}
