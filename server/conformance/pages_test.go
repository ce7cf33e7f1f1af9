package conformance

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

var pages = &http.Client{Timeout: answerLimit, Transport: &http.Transport{DisableKeepAlives: true}}

// page reads one admin page; "" if there is none.
func (in *instance) page(path string) (code int, body string) {
	resp, err := pages.Get("http://" + in.admin + path)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(b)
}

// metric reads one number, named as the page names it.
func (in *instance) metric(t testing.TB, name string) float64 {
	t.Helper()
	code, body := in.page("/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics: %d", code)
	}
	s := bufio.NewScanner(strings.NewReader(body))
	for s.Scan() {
		if value, ok := strings.CutPrefix(s.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("/metrics has no %s", name)
	return 0
}

// ready waits until the node says so.
func (in *instance) ready(t testing.TB, limit time.Duration) {
	t.Helper()
	eventually(t, limit, "ready", func() bool {
		code, _ := in.page("/readyz")
		return code == http.StatusOK
	})
}
