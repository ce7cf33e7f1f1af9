package server

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// adminPortOffset lies between the port of BIND and the default port of the admin listener.
const adminPortOffset = 55

// checker fills in the defaults that follow from other settings, and checks what settings mean together.
type checker struct {
	s        *Settings
	src      *sources
	warnings []string
}

func (c *checker) warn(format string, args ...any) {
	c.warnings = append(c.warnings, fmt.Sprintf(format, args...))
}

// bad is an error of a setting whose own value is well-formed.
func (c *checker) bad(name, format string, args ...any) error {
	g := c.src.values[name]
	secret := false
	if r := rowByName(name); r != nil {
		secret = r.secret
		if g.from == "" {
			g.value = r.start
		}
	}
	return &SettingError{Setting: g.label(name), Value: g.value, Secret: secret, Allowed: fmt.Sprintf(format, args...)}
}

func (c *checker) run() error {
	for _, step := range []func() error{
		c.nodeName, c.listeners, c.tokens, c.openListeners, c.clientTLS, c.admin, c.cluster, c.peers,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) nodeName() error {
	if c.s.NodeName != "" {
		return nil
	}
	name, err := os.Hostname()
	if err != nil {
		return c.bad("NODE_NAME", "the host name is not known (%v); give one", err)
	}
	if setNodeName(c.s, name) != nil {
		return c.bad("NODE_NAME", "the host name cannot be used as a name; give one")
	}
	return nil
}

func (c *checker) listeners() error {
	on := c.s.Listeners()
	if len(on) == 0 {
		return c.bad("BIND", "all client listeners are off; give BIND or one of LISTEN_V3, LISTEN_0_3, LISTEN_0_1")
	}
	for i, l := range on {
		for _, other := range on[:i] {
			if _, port, _ := splitAddress(l.Addr); l.Addr == other.Addr && port != 0 {
				return c.bad(l.Setting, "is the address of %s too; each listener needs its own", other.Setting)
			}
		}
	}
	for _, d := range []struct {
		field    *string
		listener string
	}{
		{&c.s.Advertise, c.s.Bind}, {&c.s.Advertise03, c.s.Listen03}, {&c.s.Advertise01, c.s.Listen01},
	} {
		if *d.field == "" {
			*d.field = d.listener
		}
	}
	if c.s.Listen01 != "" && !onLoopback(c.s.Listen01) {
		c.warn("LISTEN_0_1 is off loopback: wire 0.1 releases by key alone, so a late release can free a lock that another holder has")
	}
	return nil
}

func (c *checker) tokens() error {
	tokens, warnings, err := c.s.RereadTokens()
	if err != nil {
		return err
	}
	c.s.ClientTokens = tokens
	c.warnings = append(c.warnings, warnings...)
	return nil
}

func (c *checker) openListeners() error {
	if len(c.s.ClientTokens) > 0 {
		return nil
	}
	for _, l := range c.s.Listeners() {
		switch {
		case onLoopback(l.Addr):
		case !c.s.AllowOpen:
			return c.bad(l.Setting, "is off loopback and there are no client tokens: give CLIENT_TOKENS or CLIENT_TOKENS_FILE, or ALLOW_OPEN=true if anyone may take locks")
		default:
			c.warn("%s is off loopback without client tokens: anyone who can connect may take locks", l.Setting)
		}
	}
	return nil
}

func (c *checker) clientTLS() error {
	s := c.s
	if (s.TLSCert == "") != (s.TLSKey == "") {
		one, other := "TLS_CERT", "TLS_KEY"
		if s.TLSCert == "" {
			one, other = other, one
		}
		return c.bad(one, "must be given together with %s", other)
	}
	if s.TLSCert == "" {
		return nil
	}
	_, err := s.ClientCertificates().load()
	return err
}

func (c *checker) admin() error {
	s := c.s
	if _, given := c.src.values["ADMIN_BIND"]; !given && s.Bind != "" {
		_, port, _ := splitAddress(s.Bind)
		if port > 0 {
			port += adminPortOffset
		}
		if port > 65535 {
			return c.bad("ADMIN_BIND", "the default, port of BIND + %d, is beyond 65535; give one, or an empty one for off", adminPortOffset)
		}
		s.AdminBind = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	for _, l := range s.Listeners() {
		if _, port, _ := splitAddress(l.Addr); l.Addr == s.AdminBind && port != 0 {
			return c.bad("ADMIN_BIND", "is the address of %s too, %s; each listener needs its own", l.Setting, l.Addr)
		}
	}
	if s.AdminBind != "" && !onLoopback(s.AdminBind) {
		c.warn("ADMIN_BIND is off loopback: anyone who can connect may read the metrics")
	}
	return nil
}

// cluster also says which given settings count only in the other mode.
func (c *checker) cluster() error {
	s := c.s
	if !s.Clustered() {
		for _, name := range []string{"PEER_BIND", "FORM", "PEER_TOKEN", "PEER_TOKEN_FILE", "PEER_TLS_CERT"} {
			if c.src.values[name].from != "" {
				c.warn("%s is ignored: CLUSTER is not set", name)
			}
		}
		s.PeerBind, s.FormAuto = "", false
		return nil
	}
	for i, m := range s.Cluster {
		if m == s.Advertise {
			s.Slot = i
		}
		if _, port, _ := splitAddress(m); port+s.PeerPortOffset > 65535 {
			return c.bad("PEER_PORT_OFFSET", "the peer port of member %d, %d + %d, is beyond 65535", i, port, s.PeerPortOffset)
		}
	}
	if s.Slot < 0 {
		return c.bad("ADVERTISE", "is %q here, and must be one of CLUSTER: %s", s.Advertise, strings.Join(s.Cluster, ","))
	}
	for _, name := range []string{"MAX_KEYS", "FIRST_TOKEN"} {
		if c.src.values[name].from != "" {
			c.warn("%s is ignored: it counts in single mode only", name)
		}
	}
	if s.GraceSet {
		c.warn("GRACE is ignored: the grace of a cluster is set when it is formed, by `ticketing init --grace`")
	}
	if s.FormAuto && s.DataDir == "" {
		c.warn("FORM=auto without DATA_DIR cannot tell a first start from the loss of every node's memory at once: use it for tests, or where the database fences every write")
	}
	return nil
}

func (c *checker) peers() error {
	s := c.s
	if !s.Clustered() {
		return nil
	}
	if s.PeerBind == "" {
		base := s.Listeners()[0]
		host, port, _ := splitAddress(base.Addr)
		if port == 0 || port+s.PeerPortOffset > 65535 {
			return c.bad("PEER_BIND", "the default, port of %s + %d, is not a port; give one", base.Setting, s.PeerPortOffset)
		}
		s.PeerBind = net.JoinHostPort(host, strconv.Itoa(port+s.PeerPortOffset))
	}
	if s.PeerTokenFile != "" {
		token, err := readPeerToken(s.PeerTokenFile)
		if err != nil {
			return err
		}
		if !s.PeerToken.Empty() && !s.PeerToken.equal(token) {
			return c.bad("PEER_TOKEN", "PEER_TOKEN_FILE is the same setting and has another value")
		}
		s.PeerToken = token
	}
	if n := len(s.PeerToken.Bytes()); n > 0 && n < goodTokenBytes {
		c.warn("the peer token has fewer than %d bytes: whoever records a connection of members can guess it", goodTokenBytes)
	}
	if err := c.peerTLS(); err != nil {
		return err
	}
	if !onLoopback(s.PeerBind) && s.PeerToken.Empty() && s.PeerTLSCA == "" {
		return c.bad("PEER_BIND", "%s is off loopback: give PEER_TOKEN or PEER_TOKEN_FILE, or mutual TLS (PEER_TLS_CERT, PEER_TLS_KEY and PEER_TLS_CA)", s.PeerBind)
	}
	return nil
}

func (c *checker) peerTLS() error {
	s := c.s
	switch {
	case s.PeerTLSCert == "" && s.PeerTLSKey == "" && s.PeerTLSCA == "":
		return nil
	case s.PeerTLSCert == "" && s.PeerTLSKey == "":
		return c.bad("PEER_TLS_CA", "must be given together with PEER_TLS_CERT and PEER_TLS_KEY")
	case s.PeerTLSKey == "":
		return c.bad("PEER_TLS_CERT", "must be given together with PEER_TLS_KEY")
	case s.PeerTLSCert == "":
		return c.bad("PEER_TLS_KEY", "must be given together with PEER_TLS_CERT")
	}
	_, err := s.PeerCertificates().load()
	return err
}

// onLoopback says whether only this machine can connect to a listener. A name other than localhost may mean anything.
func onLoopback(addr string) bool {
	host, _, _ := splitAddress(addr)
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
