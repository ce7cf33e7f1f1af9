package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	adminDefault = "127.0.0.1:5280" // the port of BIND's default plus 55
	adminTimeout = 5 * time.Second
	adminMax     = 1 << 20 // bytes of a status page
)

// nodeStatus is what is read of a node's /status.
type nodeStatus struct {
	Mode        string `json:"mode"`
	Version     string `json:"version"`
	Fingerprint string `json:"identity_fingerprint"`
	Ready       bool   `json:"ready"`
	Reason      string `json:"reason"`
	Cluster     *struct {
		Cluster    string `json:"cluster"`
		Slot       int    `json:"slot"`
		Role       string `json:"role"`
		Term       uint64 `json:"term"`
		LeaderSlot int    `json:"leader_slot"`
	} `json:"cluster"`
}

func status(w *world, args []string) error {
	set := flag.NewFlagSet("status", flag.ContinueOnError)
	at := set.String("admin", "", "")
	asJSON := set.Bool("json", false, "")
	words, err := flags(w, set, args)
	if err != nil {
		return err
	}
	if len(words) > 0 {
		return fmt.Errorf("%w: status takes no words, but %q", errUsage, words[0])
	}
	if *at == "" {
		*at = w.setting("ADMIN_BIND")
	}
	if *at == "" {
		*at = adminDefault
	}
	client := http.Client{Timeout: adminTimeout}
	resp, err := client.Get("http://" + *at + "/status")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, adminMax))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", *at, resp.Status)
	}
	if *asJSON {
		_, err := w.out.Write(body)
		return err
	}
	var s nodeStatus
	if err := json.Unmarshal(body, &s); err != nil {
		return fmt.Errorf("%s: %w", *at, err)
	}
	fmt.Fprintf(w.out, "mode %s, version %s\n", s.Mode, s.Version)
	if c := s.Cluster; c != nil {
		fmt.Fprintf(w.out, "cluster %s, slot %d, %s, term %d, leader in slot %d\n", c.Cluster, c.Slot, c.Role, c.Term, c.LeaderSlot)
	}
	if s.Fingerprint != "" {
		fmt.Fprintln(w.out, "identity_fingerprint", s.Fingerprint)
	}
	if s.Ready {
		fmt.Fprintln(w.out, "ready")
	} else {
		fmt.Fprintln(w.out, "not ready:", s.Reason)
	}
	return nil
}
