package eventloop

import "time"

// Limits of a connection. The section numbers are PROTOCOL.md's.
const (
	authTimeout     = 10 * time.Second       // 1.6: accept to the end of authentication, TLS included
	frameTimeout    = 5 * time.Second        // 2: first byte of a frame to its end
	stallTimeout    = 5 * time.Second        // 5: longest time in back-pressure without a byte taken by the kernel
	leaveTimeout    = 5 * time.Second        // 2: longest wait for what is in flight before the farewell of a bad frame
	lingerTimeout   = 1 * time.Second        // "close": how long the peer may take what is due
	quietTimeout    = 60 * time.Second       // 1.9: nothing written for so long: a keep-alive
	turnTimeout     = 2 * time.Second        // 1.7: how long a connection too many may take for its TLS handshake
	evictableAfter  = 1 * time.Second        // 1.7: how long an unauthenticated connection is safe when all are taken
	maxUnwritten    = 256                    // 5: replies the kernel has not taken before decoding stops
	maxKeptSlow     = 256 << 10              // 5: bytes kept in back-pressure; beyond it the connection is closed as slow
	maxKeptPaused   = 8 << 20                // bytes kept while the Host has no room; gnet cannot stop reading, so beyond it the connection is closed
	maxKeptCipher   = 64 << 10               // bytes of TLS records kept for a handshake that does not keep up
	repliesPerWrite = 64                     // 5: replies of one connection in one system call
	dirtySessions   = 128                    // sessions whose replies one drain gathers before it writes; bounds the buffers to about 1.2 MB a loop
	tickPeriod      = 100 * time.Millisecond // resolution of all time limits but the next
	stallPoll       = 5 * time.Millisecond   // how often a connection with unwritten bytes is looked at: gnet tells nothing of progress
	maxTurned       = 4                      // connections too many that are let to their TLS handshake at a time; likewise
	maxHangUps      = 64                     // unauthenticated connections that are asked whether they have gone when all places are taken
	maxEvictions    = 4                      // evicted connections that may still be open; they hold descriptors above the cap
	maxLoops        = 64                     // SessionID has 8 bits; more loops than cores gain nothing
	sendBufferBytes = 64 << 10               // SO_SNDBUF, doubled by Linux; without it the kernel takes 3.9 MB for a peer that never reads
	readBufferBytes = 64 << 10               // one read buffer a loop: 4, 16 and 64 KiB cost the same CPU a request in BenchmarkRoundTrips, 64 KiB the least at depth 512
)

// Dead peers: a silent one is probed after keepAliveIdle and dropped when userTimeout has passed since it was last heard;
// where there is no user timeout, after keepAliveIdle + keepAliveCount*keepAliveInterval = 20 s. Both are within 30 s.
const (
	keepAliveIdle     = 8 * time.Second
	keepAliveInterval = 4 * time.Second
	keepAliveCount    = 3
	userTimeout       = 20 * time.Second
)

// Wrong answers, PROTOCOL.md 1.8.
const (
	penaltyWindow   = time.Minute
	penaltyFree     = 10 // wrong answers within the window that cost nothing
	penaltyFirst    = 500 * time.Millisecond
	penaltyLongest  = 8 * time.Second
	penaltyCapacity = 65536 // addresses remembered, the least recently wrong forgotten first
)

// A challenge held back for the longest time leaves time for its answer.
const _ = uint(authTimeout - penaltyLongest - time.Second)
