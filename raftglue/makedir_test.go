package raftglue

import (
	"path/filepath"
	"testing"
)

// A directory that was made and is not on disk takes all with it that was fsynced in it: the tokens of a single node, and
// the vote of a coordinator before it has written down that it is part of a cluster.
func TestDirectoriesOutliveACrash(t *testing.T) {
	synced := map[string]bool{} // directories whose listing is on disk, with what was to be in it
	was, want := syncDir, ""
	defer func() { syncDir = was }()
	syncDir = func(dir string) error {
		synced[dir] = synced[dir] || want == "" || exists(dir, want)
		return was(dir)
	}
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b")
	f, err := OpenTokenFile(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, d := range []string{root, filepath.Join(root, "a"), dir} {
		if !synced[d] {
			t.Errorf("%s was never synced", d)
		}
	}
	clear(synced)
	want = walName
	n := &Node{log: testLog("a"), inc: newIncarnation()}
	n.cfg.Election = testElection
	st, err := n.openStores(&dataDir{path: dir})
	if err != nil {
		t.Fatal(err)
	}
	st.close()
	if !synced[dir] {
		t.Errorf("%s is not known to list its log", dir)
	}
}
