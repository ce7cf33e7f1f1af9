package server

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of tokens.
const (
	maxTokenBytes  = 256
	goodTokenBytes = 16   // shorter ones can be guessed from one recorded handshake: a warning
	maxTokens      = 1000 // every one costs a hash at each handshake
)

// checkToken says what is wrong with a token, without repeating it.
func checkToken(t []byte) error {
	switch {
	case len(t) == 0:
		return errors.New("is an empty token")
	case len(t) > maxTokenBytes:
		return fmt.Errorf("is a token of more than %d bytes", maxTokenBytes)
	}
	for i := 0; i < len(t); {
		r, n := utf8.DecodeRune(t[i:])
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return errors.New("is a token with white space or a control character")
		}
		i += n
	}
	return nil
}

// splitTokens reads CLIENT_TOKENS.
func splitTokens(v string) ([]Secret, error) {
	var tokens []Secret
	for i, t := range strings.Split(v, ",") {
		s := NewSecret(t)
		if err := checkToken(s.Bytes()); err != nil {
			return nil, fmt.Errorf("entry %d %w", i+1, err)
		}
		tokens = append(tokens, s)
	}
	return tokens, nil
}

// RereadTokens puts CLIENT_TOKENS and what CLIENT_TOKENS_FILE holds now together, none twice. Settings are not changed.
// On an error, which names file and line and never a token, the caller keeps the tokens it has.
func (s *Settings) RereadTokens() (tokens []Secret, warnings []string, err error) {
	var inFile []Secret
	if s.ClientTokensFile != "" {
		if inFile, err = readTokenFile("CLIENT_TOKENS_FILE", s.ClientTokensFile); err != nil {
			return nil, nil, err
		}
	}
	seen := make(map[string]bool)
	short := 0
	for _, list := range [][]Secret{s.namedTokens, inFile} {
		for _, t := range list {
			if seen[string(t.Bytes())] {
				continue
			}
			seen[string(t.Bytes())] = true
			tokens = append(tokens, t)
			if len(t.Bytes()) < goodTokenBytes {
				short++
			}
		}
	}
	if len(tokens) > maxTokens {
		return nil, nil, &SettingError{Setting: "CLIENT_TOKENS", Secret: true, Allowed: fmt.Sprintf("%d tokens; must be %d at most", len(tokens), maxTokens)}
	}
	if short > 0 {
		warnings = append(warnings, fmt.Sprintf("%d of %d client tokens have fewer than %d bytes: whoever records a handshake can guess them", short, len(tokens), goodTokenBytes))
	}
	return tokens, warnings, nil
}

// ReloadTokens is RereadTokens for a SIGHUP: a bad file is logged and refused (ok false), and the old tokens stay.
func (s *Settings) ReloadTokens(log *slog.Logger) (tokens []Secret, ok bool) {
	tokens, warnings, err := s.RereadTokens()
	if err != nil {
		log.Error("client tokens not read again, the old ones stay", "error", err.Error())
		return nil, false
	}
	for _, w := range warnings {
		log.Warn(w)
	}
	log.Info("client tokens read again", "tokens", len(tokens))
	return tokens, true
}

// readPeerToken reads PEER_TOKEN_FILE: one line.
func readPeerToken(path string) (Secret, error) {
	tokens, err := readTokenFile("PEER_TOKEN_FILE", path)
	if err != nil {
		return Secret{}, err
	}
	if len(tokens) != 1 {
		return Secret{}, &SettingError{Setting: "PEER_TOKEN_FILE", Secret: true, Allowed: fmt.Sprintf("%s has %d lines; must be one", path, len(tokens))}
	}
	return tokens[0], nil
}

func (s Secret) equal(t Secret) bool { return bytes.Equal(s.Bytes(), t.Bytes()) }
