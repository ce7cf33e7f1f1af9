package ticketing_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Limits of the house.
const (
	maxFileLines     = 600
	maxFunctionLines = 70
	maxCommandLines  = 150 // of a file under cmd
)

// rule is one rule about one file; check returns what is wrong, a line each.
type rule struct {
	name  string
	check func(*source) []string
}

var rules = []rule{
	{"imports", importsOutsideTable},
	{"sole importers", importsOfOthers},
	{"purity", impurities},
	{"lengths", lengths},
	{"exported names have comments", exportedWithoutComment},
	{"names", bannedNames},
	{"no sleep in tests", sleepsInTests},
	{"no promises", promises},
	{"goroutines end", goWithoutEnd},
}

// permittedFor finds the line of a folder: its own, or that of the nearest folder above.
func permittedFor(dir string) ([]string, bool) {
	for ; ; dir = path.Dir(dir) {
		if list, ok := permitted[dir]; ok {
			return list, true
		}
		if !strings.Contains(dir, "/") {
			return nil, false
		}
	}
}

// covers says whether an import path is name or lies below it.
func covers(name, imported string) bool {
	return imported == name || strings.HasPrefix(imported, name+"/")
}

func importsOutsideTable(s *source) (bad []string) {
	allowed, _ := permittedFor(s.dir())
	if s.isTest() {
		allowed = append(slices.Clone(allowed), permittedInTests...)
	}
	for _, spec := range s.tree.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		name := strings.TrimPrefix(imported, module)
		standard := !strings.Contains(strings.Split(imported, "/")[0], ".")
		itself := s.isTest() && name == s.dir()
		if standard || itself || slices.ContainsFunc(allowed, func(a string) bool { return covers(a, name) }) {
			continue
		}
		bad = append(bad, s.at(spec.Pos(), "%s may not import %s: see the table in house_test.go", s.dir(), name))
	}
	return bad
}

func importsOfOthers(s *source) (bad []string) {
	for _, spec := range s.tree.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		for library, folders := range soleImporters {
			if covers(library, imported) && !slices.ContainsFunc(folders, s.in) {
				bad = append(bad, s.at(spec.Pos(), "only %s may import %s", strings.Join(folders, " and "), library))
			}
		}
	}
	return bad
}

// clockCalls are what a pure package may not take from package time.
var clockCalls = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}

// worldly are the packages through which anything but the arguments reaches a pure one.
var worldly = []string{"context", "crypto/rand", "math/rand", "math/rand/v2", "net", "os", "sync", "sync/atomic", "syscall", "log", "log/slog"}

func impurities(s *source) (bad []string) {
	if s.isTest() || !s.in("codec") && !s.in("locktable") {
		return nil
	}
	for _, spec := range s.tree.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		if slices.Contains(worldly, imported) {
			bad = append(bad, s.at(spec.Pos(), "a pure package may not import %s", imported))
		}
	}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			bad = append(bad, s.at(n.Pos(), "a pure package starts no goroutine"))
		case *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
			bad = append(bad, s.at(n.Pos(), "a pure package has no channels"))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clockCalls, n.Sel.Name) {
				bad = append(bad, s.at(n.Pos(), "time.%s: time is an argument here", n.Sel.Name))
			}
		}
		return true
	})
	return bad
}

// orderMark is what the comment over a range over a map must say, with the reason behind it.
const orderMark = "order does not matter:"

// mapRanges finds loops over maps in the files of one package, and calls of the iterators of package maps, that no comment
// excuses.
func mapRanges(files []*source) (bad []string, err error) {
	if len(files) == 0 {
		return nil, fmt.Errorf("no files")
	}
	fset := token.NewFileSet()
	var trees []*ast.File
	for i, s := range files {
		if files[i], err = parseInto(fset, s); err != nil {
			return nil, err
		}
		trees = append(trees, files[i].tree)
	}
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	cfg := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	if _, err := cfg.Check(files[0].dir(), fset, trees, info); err != nil {
		return nil, err
	}
	for _, s := range files {
		excused := commentLines(s)
		ast.Inspect(s.tree, func(n ast.Node) bool {
			found := false
			switch n := n.(type) {
			case *ast.RangeStmt:
				if t := info.TypeOf(n.X); t != nil {
					_, found = t.Underlying().(*types.Map)
				}
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				found = ok && x.Name == "maps" && slices.Contains([]string{"Keys", "Values", "All"}, n.Sel.Name)
			}
			if found && !strings.Contains(excused[s.line(n.Pos())], orderMark) {
				bad = append(bad, s.at(n.Pos(), "the order of a map: sort, or say over it %q and why", orderMark))
			}
			return true
		})
	}
	return bad, nil
}

func lengths(s *source) (bad []string) {
	lines := strings.Count(s.text, "\n")
	if lines > maxFileLines {
		bad = append(bad, fmt.Sprintf("%s: %d lines; %d at most", s.path, lines, maxFileLines))
	}
	if s.in("cmd") && !s.isTest() && lines >= maxCommandLines {
		bad = append(bad, fmt.Sprintf("%s: %d lines; a command has less than %d and leaves the work to packages", s.path, lines, maxCommandLines))
	}
	for _, d := range s.tree.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := s.line(f.End()) - s.line(f.Pos()) + 1; n > maxFunctionLines {
			bad = append(bad, s.at(f.Pos(), "%s has %d lines; %d at most", f.Name.Name, n, maxFunctionLines))
		}
	}
	return bad
}

// wellKnown are methods whose contract every reader of Go knows.
var wellKnown = []string{"Error", "String", "Unwrap", "Len", "Less", "Swap", "Push", "Pop"}

func exportedWithoutComment(s *source) (bad []string) {
	if s.isTest() || s.tree.Name.Name == "main" {
		return nil
	}
	for _, d := range s.tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) && !(d.Recv != nil && slices.Contains(wellKnown, d.Name.Name)) {
				bad = append(bad, s.at(d.Pos(), "%s has no comment", d.Name.Name))
			}
		case *ast.GenDecl:
			bad = append(bad, undocumentedSpecs(s, d)...)
		}
	}
	return bad
}

func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	exported := false
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			exported = exported || id.IsExported()
			return false
		}
		return true
	})
	return exported
}

// undocumentedSpecs takes a comment over a group for all in it, and the type of a group of constants for its meaning.
func undocumentedSpecs(s *source, d *ast.GenDecl) (bad []string) {
	typed := false
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
				bad = append(bad, s.at(spec.Pos(), "%s has no comment", spec.Name.Name))
			}
		case *ast.ValueSpec:
			typed = typed || d.Tok == token.CONST && spec.Type != nil
			for _, name := range spec.Names {
				if name.IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil && !typed {
					bad = append(bad, s.at(name.Pos(), "%s has no comment", name.Name))
				}
			}
		}
	}
	return bad
}

// Words that say nothing about what a thing is.
var (
	emptySuffixes = []string{"Manager", "Handler", "Helper", "Helpers", "Util", "Utils", "Service", "Processor"}
	// namedByOthers are methods that an interface of a dependency asks for by this name.
	namedByOthers = []string{"SetHeartbeatHandler"} // raft.Transport
	emptyPackages = []string{"util", "utils", "common", "types", "models", "helpers", "helper", "misc", "base", "pkg", "manager"}
)

func bannedNames(s *source) (bad []string) {
	if name := s.tree.Name.Name; slices.Contains(emptyPackages, name) || slices.Contains(emptyPackages, path.Base(s.dir())) {
		bad = append(bad, s.at(s.tree.Package, "package %s: the name says nothing", name))
	}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		var name *ast.Ident
		switch n := n.(type) {
		case *ast.TypeSpec:
			name = n.Name
		case *ast.FuncDecl:
			name = n.Name
		default:
			return true
		}
		if slices.Contains(namedByOthers, name.Name) {
			return true
		}
		for _, suffix := range emptySuffixes {
			if strings.HasSuffix(strings.ToLower(name.Name), strings.ToLower(suffix)) {
				bad = append(bad, s.at(name.Pos(), "%s: %s says nothing about what it is", name.Name, suffix))
			}
		}
		return true
	})
	return bad
}

// sleepsInTests lets tests in virtual time sleep.
func sleepsInTests(s *source) (bad []string) {
	if !s.isTest() || slices.ContainsFunc(s.tree.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` }) {
		return nil
	}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
				bad = append(bad, s.at(n.Pos(), "time.Sleep in a test: wait for the condition, or use testing/synctest"))
			}
		}
		return true
	})
	return bad
}

var promise = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b|(?i)\b(not implemented|unimplemented|for now)\b`)

func promises(s *source) (bad []string) {
	for _, g := range s.tree.Comments {
		for _, c := range g.List {
			if word := promise.FindString(c.Text); word != "" {
				bad = append(bad, s.at(c.Pos(), "%q promises work for later", word))
			}
		}
	}
	return bad
}

var endWord = regexp.MustCompile(`(?i)\b(end|ends|ended|until|stops?|stopped|returns?|closes?|closed|lives|waits?|waited|joined)\b`)

// goWithoutEnd wants to read, on the line over each go statement or behind it, who ends the goroutine. Tests are held to
// it by their leak checks.
func goWithoutEnd(s *source) (bad []string) {
	if s.isTest() {
		return nil
	}
	said := commentLines(s)
	ast.Inspect(s.tree, func(n ast.Node) bool {
		if g, ok := n.(*ast.GoStmt); ok && !endWord.MatchString(said[s.line(g.Pos())]) {
			bad = append(bad, s.at(g.Pos(), "no comment says who ends this goroutine"))
		}
		return true
	})
	return bad
}

// commentLines is what the comments say that end on the line above a line, or stand on it.
func commentLines(s *source) map[int]string {
	said := make(map[int]string)
	for _, g := range s.tree.Comments {
		said[s.line(g.End())+1] += g.Text()
		said[s.line(g.Pos())] += g.Text()
	}
	return said
}

func packagesWithoutComment(all []*source) (bad []string) {
	has := make(map[string]bool)
	for _, s := range all {
		if !s.isTest() {
			has[s.dir()] = has[s.dir()] || s.tree.Doc != nil
		}
	}
	for dir, ok := range has {
		if !ok {
			bad = append(bad, dir+": no file has a package comment")
		}
	}
	sort.Strings(bad)
	return bad
}

// machinePath is put together so that this file does not hold what it looks for.
var machinePath = regexp.MustCompile(`(^|[\s"'=(` + "`" + `])/(` + "work|root|home|Users" + `)/[A-Za-z0-9]`)

func machinePaths(name, text string) (bad []string) {
	for i, line := range strings.Split(text, "\n") {
		if machinePath.MatchString(line) {
			bad = append(bad, fmt.Sprintf("%s:%d: a path of one machine", name, i+1))
		}
	}
	return bad
}
