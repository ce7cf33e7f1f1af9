package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"

	"github.com/ticketing-go/ticketing/raftglue"
)

// flags reads the flags of a command; they may stand before and behind its words, which are returned.
func flags(w *world, set *flag.FlagSet, args []string) (words []string, err error) {
	set.SetOutput(io.Discard)
	for {
		if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
			usage(w.out)
			return nil, fmt.Errorf("%w: see above", errUsage)
		} else if err != nil {
			return nil, fmt.Errorf("%w: %w", errUsage, err)
		}
		if set.NArg() == 0 {
			return words, nil
		}
		words, args = append(words, set.Arg(0)), set.Args()[1:]
	}
}

func initCluster(w *world, args []string) error {
	set := flag.NewFlagSet("init", flag.ContinueOnError)
	peer := set.String("peer", "", "")
	first := set.Uint64("first-token", 0, "")
	grace := set.Uint64("grace", 0, "")
	abandon := set.Bool("abandon", false, "")
	words, err := flags(w, set, args)
	if err != nil {
		return err
	}
	given := map[string]bool{}
	set.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case len(words) > 0:
		return fmt.Errorf("%w: init takes no words, but %q", errUsage, words[0])
	case given["first-token"] && (*first == 0 || *first > 1<<64-2):
		return fmt.Errorf("%w: --first-token %d: allowed are 1..%d", errUsage, *first, uint64(1<<64-2))
	case *abandon && (given["first-token"] || given["grace"]):
		return fmt.Errorf("%w: --abandon forms nothing", errUsage)
	}
	return w.atPeer(*peer, func(a raftglue.Admin) error {
		if *abandon {
			if err := a.Abandon(); err != nil {
				return err
			}
			fmt.Fprintln(w.out, "all promises are cleared")
			return nil
		}
		var g *uint64
		if given["grace"] {
			g = grace
		}
		f, err := a.Init(*first, g)
		if err != nil {
			return err
		}
		fmt.Fprintf(w.out, "formed cluster %s, first token %d, no grant for %v\n", f.Cluster, f.Terms.FirstToken, f.Terms.Grace)
		return nil
	})
}

func members(w *world, args []string) error {
	set := flag.NewFlagSet("members", flag.ContinueOnError)
	peer := set.String("peer", "", "")
	asJSON := set.Bool("json", false, "")
	words, err := flags(w, set, args)
	if err != nil {
		return err
	}
	slot := -1
	if len(words) > 1 {
		if slot, err = strconv.Atoi(words[1]); err != nil || slot < 0 || slot > 4 {
			return fmt.Errorf("%w: slot %q: allowed are 0..4", errUsage, words[1])
		}
	}
	switch {
	case len(words) == 0:
		return w.atPeer(*peer, func(a raftglue.Admin) error { return w.showMembers(a, *asJSON) })
	case len(words) == 3 && words[0] == "replace":
		return w.atPeer(*peer, func(a raftglue.Admin) error { return a.Replace(slot, words[2]) })
	case len(words) == 2 && words[0] == "remove":
		return w.atPeer(*peer, func(a raftglue.Admin) error { return a.Remove(slot) })
	}
	return fmt.Errorf("%w: ticketing members [replace SLOT ADDRESS | remove SLOT]", errUsage)
}

func (w *world) showMembers(a raftglue.Admin, asJSON bool) error {
	s, err := a.Members()
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(w.out).Encode(s)
	}
	fmt.Fprint(w.out, s.String())
	return nil
}
