package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
)

func texts(tokens []Secret) string {
	var all []string
	for _, t := range tokens {
		all = append(all, string(t.Bytes()))
	}
	return strings.Join(all, " ")
}

func TestCheckToken(t *testing.T) {
	for _, c := range []struct {
		token string
		ok    bool
	}{
		{"a", true}, {strings.Repeat("a", 256), true}, {"größe", true}, {"\xff\xfe", true},
		{"", false}, {strings.Repeat("a", 257), false}, {"a b", false}, {"a\t", false}, {" a", false}, {"a\r", false},
		{"a\u00a0b", false}, {"a\u2003b", false}, {"a\x00", false}, {"a\x7f", false}, {"a\u0085", false},
	} {
		if err := checkToken([]byte(c.token)); (err == nil) != c.ok {
			t.Errorf("checkToken(%q): %v, want ok %v", c.token, err, c.ok)
		}
	}
}

func TestTokensOfSettingAndFileCountTogether(t *testing.T) {
	file := writeFile(t, "tokens", "bbbbbbbbbbbbbbbb\ncccccccccccccccc")
	s, warnings := mustLoad(t, nil, "CLIENT_TOKENS=aaaaaaaaaaaaaaaa,bbbbbbbbbbbbbbbb,short", "CLIENT_TOKENS_FILE="+file)
	if got, want := texts(s.ClientTokens), "aaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbb short cccccccccccccccc"; got != want {
		t.Errorf("tokens %q, want %q", got, want)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "1 of 4") {
		t.Errorf("warnings %q, want one about the short token", warnings)
	}
}

func TestTokenLimit(t *testing.T) {
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("token-%016d", i))
	}
	mustLoad(t, nil, "CLIENT_TOKENS="+strings.Join(many, ","))
	if _, _, err := Load(nil, []string{"CLIENT_TOKENS=" + strings.Join(append(many, "one-more-0123456789"), ",")}); ExitCode(err) != ExitSetting {
		t.Errorf("1001 tokens: %v, want a setting error", err)
	}
}

func TestReloadTokens(t *testing.T) {
	file := writeFile(t, "tokens", "aaaaaaaaaaaaaaaa\n")
	s, _ := mustLoad(t, nil, "CLIENT_TOKENS_FILE="+file)
	for _, c := range []struct {
		content string // "-": no file
		want    string // empty: refused
	}{
		{"bbbbbbbbbbbbbbbb\n", "bbbbbbbbbbbbbbbb"}, {"", ""}, {"\n", ""}, {"hunter2\n\nbbbbbbbbbbbbbbbb\n", ""},
		{"hunter2 hunter2\n", ""}, {"bbbbbbbbbbbbbbbb\r\n", ""}, {"-", ""}, {"cccccccccccccccc\ndddddddddddddddd\n", "cccccccccccccccc dddddddddddddddd"},
	} {
		if c.content == "-" {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		tokens, ok := s.ReloadTokens(slog.New(slog.NewTextHandler(&out, nil)))
		if ok != (c.want != "") || texts(tokens) != c.want {
			t.Errorf("file %q: tokens %q, ok %v; want %q", c.content, texts(tokens), ok, c.want)
		}
		if strings.Contains(out.String(), "hunter2") || strings.Contains(out.String(), "old ones stay") == ok {
			t.Errorf("file %q: log %q", c.content, out.String())
		}
	}
}

func TestEmptyTokenFileIsNoOpenServer(t *testing.T) {
	if _, _, err := Load(nil, []string{"CLIENT_TOKENS_FILE=" + writeFile(t, "tokens", "")}); ExitCode(err) != ExitSetting {
		t.Errorf("empty file: %v, want a setting error", err)
	}
}

func TestPeerTokenFile(t *testing.T) {
	file := writeFile(t, "peer", "fedcba9876543210\n")
	cluster := []string{"CLUSTER=127.0.0.1:5225,a:1,a:2", "PEER_TOKEN_FILE=" + file}
	s, _ := mustLoad(t, nil, cluster...)
	if got := string(s.PeerToken.Bytes()); got != "fedcba9876543210" {
		t.Errorf("peer token %q", got)
	}
	mustLoad(t, nil, append(cluster, "PEER_TOKEN=fedcba9876543210")...)
}
