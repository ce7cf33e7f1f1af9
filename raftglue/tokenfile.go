package raftglue

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"time"
)

const (
	singleName = "single.json"
	// tokenBlock is how many tokens are reserved at a time: at a million grants a second one fsync a second. What is
	// reserved and not issued is skipped by a restart.
	tokenBlock = 1 << 20
)

// TokenFile is what a single node with a data directory must not forget: which tokens it may have issued, and the
// longest lease it has granted (CLUSTER.md). It has one user, the apply goroutine. Reserve and Longest wait for the
// disk now and then.
type TokenFile struct {
	dir  string
	lock *os.File
	now  singleFile
	// first and grace are what this start found.
	first uint64
	grace time.Duration
}

type singleFile struct {
	Version  int           `json:"version"`
	Starts   uint64        `json:"starts"`
	Reserved uint64        `json:"reserved"` // the highest token that may have been issued
	Longest  time.Duration `json:"longest_lease_ns"`
}

// OpenTokenFile locks the directory, counts the start and reserves the first block, on disk. first is the setting
// FIRST_TOKEN, which counts where it is higher than what is stored.
func OpenTokenFile(dir string, first uint64) (*TokenFile, error) {
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	t := &TokenFile{dir: dir, lock: lock}
	if err := t.open(max(first, 1)); err != nil {
		lock.Close()
		return nil, err
	}
	return t, nil
}

var errTokenFile = errors.New("malformed")

func (t *TokenFile) open(first uint64) error {
	if exists(t.dir, identityName) {
		return &DirError{t.dir, errClusterDir}
	}
	err := readJSON(t.dir, singleName, &t.now)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
		t.now = singleFile{Version: 1}
	} else if err == nil && (t.now.Version != 1 || t.now.Starts == 0 || t.now.Longest < 0) {
		err = fmt.Errorf("%s: %w", singleName, errTokenFile)
	}
	if err != nil {
		return fmt.Errorf("DATA_DIR %s: %w: which tokens were issued is unknown. Move the directory away and start again "+
			"with FIRST_TOKEN above the highest token that the database has seen, and GRACE as long as the longest lease",
			t.dir, err)
	}
	t.now.Starts++
	t.first = max(first, t.now.Reserved+1)
	if t.now.Reserved == math.MaxUint64 {
		t.first = math.MaxUint64 // spent; the table says so to every acquire
	}
	t.grace = t.now.Longest
	return t.reserve(t.first)
}

// First is the first token that this start may issue.
func (t *TokenFile) First() uint64 { return t.first }

// Grace is how long this start must wait before its first grant: the longest lease that earlier starts have granted.
func (t *TokenFile) Grace() time.Duration { return t.grace }

// Starts is how often the directory has been started from, this time included.
func (t *TokenFile) Starts() uint64 { return t.now.Starts }

// Reserve makes sure, before it returns nil, that no later start issues a token up to and including this one.
func (t *TokenFile) Reserve(token uint64) error {
	if token <= t.now.Reserved {
		return nil
	}
	return t.reserve(token)
}

func (t *TokenFile) reserve(token uint64) error {
	next := t.now
	next.Reserved = max(t.now.Reserved, token+min(tokenBlock, math.MaxUint64-token))
	return t.write(next)
}

// Longest makes sure, before it returns nil, that the next start waits at least this lease. What is kept is rounded up,
// by up to an eighth, so that leases which grow by little do not each wait for the disk.
func (t *TokenFile) Longest(lease time.Duration) error {
	if lease <= t.now.Longest {
		return nil
	}
	next := t.now
	next.Longest = lease + min(lease/8, math.MaxInt64-lease)
	return t.write(next)
}

func (t *TokenFile) write(next singleFile) error {
	if err := writeJSON(t.dir, singleName, next); err != nil {
		return fmt.Errorf("DATA_DIR: %w", err)
	}
	t.now = next
	return nil
}

// Close gives the directory free.
func (t *TokenFile) Close() error { return t.lock.Close() }
