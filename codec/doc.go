// Package codec turns bytes into messages and messages into bytes, for the four wires that Ticketing speaks.
//
// It decides what is a whole frame, what is a bad one and why, how long frames, keys and times may be, and how each wire
// says what the core has to say. It refuses to know sockets, locks, clocks and goroutines. A Wire has no state: the
// event loops call it for all their connections at once, each on its own goroutine, and load generators and tests use
// the same code from the other end (ClientWire). Decoded keys borrow the buffer; replies are appended to one that the
// caller keeps. Neither Decode nor AppendReply allocates.
//
// PROTOCOL.md and WIRES.md are the norm; the sections named in comments are theirs. Numbers are unsigned and
// big-endian. Times on a wire are whole seconds. A key is 1 to 128 bytes of UTF-8 without a space, and without a line
// feed, which ends a text frame; wire 3 refuses carriage returns too.
//
// # A conversation on v1
//
//	S  sha256 q83vAAAB\n                 the challenge: a nonce that is never the same twice
//	C  <43 characters>\n                 base64url of SHA-256(token, nonce); right: the server says nothing
//	C  A 5 30 owner=7 seat-17\n          wait up to 5 s for seat-17, hold it for up to 30 s
//	S  A token=41 owner=7 seat-17\n      it is yours; 41 is higher than any token before
//	C  A 5 30 owner=8 seat-17\n          somebody else wants it, and queues
//	C  R token=41 seat-17\n              the first gives it back ...
//	S  R token=41 seat-17\n              ... and hears that it held it until now
//	S  A token=42 owner=8 seat-17\n      the second is granted in the same step
//	C  A 0 30 owner=9 seat-17\n          one attempt without queueing
//	S  T owner=9 seat-17\n               held: definitely not acquired
//
// # Text wires: v1, 0.3 and 0.1
//
// A frame is an op, a header whose length the op gives, text, and a line feed (LF, 0x0A); 192 bytes at most before the
// LF. Header bytes may be 0x0A as well, so they are counted before the LF is looked for. An empty frame, LF alone, is a
// keep-alive in both directions. Numbers over the boxes are bytes.
//
//	         1     1      1       8       1..128   1
//	v1     +---+------+-------+---------+--------+----+
//	C to S | A | wait | lease |  owner  |  key   | LF |    acquire; wait 0..255, lease 1..250
//	       +---+------+-------+---------+--------+----+
//	         1     2      2       8       1..128   1
//	0.3    +---+------+-------+---------+--------+----+
//	C to S | A | wait | lease |  owner  |  key   | LF |    wait 0 is for ever, lease 1..65535
//	       +---+------+-------+---------+--------+----+
//	         1     2      2     1..128   1
//	0.1    +---+------+-------+--------+----+
//	C to S | A | wait | lease |  key   | LF |              the same times as 0.3
//	       +---+------+-------+--------+----+
//
//	         1      8      1..128   1             1   1..128   1
//	v1     +---+---------+--------+----+  0.1   +---+--------+----+
//	0.3    | R |  token  |  key   | LF |        | R |  key   | LF |    release
//	C to S +---+---------+--------+----+        +---+--------+----+
//
//	         1      8         8      1..128   1             1      8      1..128   1
//	v1     +---+---------+---------+--------+----+  0.1   +---+---------+--------+----+
//	0.3    | A |  token  |  owner  |  key   | LF |        | A |  token  |  key   | LF |    granted
//	S to C +---+---------+---------+--------+----+        +---+---------+--------+----+
//	         1      8      1..128   1                       1   1..128   1
//	v1     +---+---------+--------+----+            0.1   +---+--------+----+
//	0.3    | T |  owner  |  key   | LF |                  | T |  key   | LF |    timed out
//	S to C | B |  owner  |  key   | LF |                  +---+--------+----+    busy: T on 0.1
//	       +---+---------+--------+----+
//	         1      8      1..128   1                       1   1..128   1
//	v1     +---+---------+--------+----+            0.1   +---+--------+----+
//	0.3    | R |  token  |  key   | LF |                  | R |  key   | LF |    released
//	S to C | N |  token  |  key   | LF |                  | N |  key   | LF |    not held
//	       +---+---------+--------+----+                  +---+--------+----+
//	         1   1..191   1
//	all    +---+--------+----+
//	S to C | M |  addr  | LF |    moved: the leader's address as this wire's clients know it
//	       | L |  addr  | LF |    leader notice, as a hint; not on 0.1
//	       | E | reason | LF |    error, one of the eight reasons
//	       +---+--------+----+
//
// The handshake is of lines, 256 bytes at most before the LF:
//
//	         6      1      8     1              43      1               1       11        1
//	       +--------+----+-------+----+       +--------+----+         +---+-------------+----+
//	S to C | sha256 | SP | nonce | LF |  C to S | digest | LF |  S to C | E | auth_failed | LF |  or nothing
//	       +--------+----+-------+----+       +--------+----+         +---+-------------+----+
//
// # Wire 3
//
// A frame is an op, the length of its body, and the body. Nothing ends it, nothing keeps alive. keys is a count and,
// for each key, its length and its bytes, in ascending order.
//
//	         1     2      8     1      1     1..128                       1     2      8     8     1..128
//	C to S +---+--------+----+------+-------+-------+            C to S +---+--------+----+-------+-------+
//	       | A | length | id | wait | lease |  key  |  acquire          | R | length | id | token |  key  |  release
//	       | S | length | id | wait | lease | keys  |  ... a set        | G | length | id | token | keys  |  ... a set
//	       +---+--------+----+------+-------+-------+                   +---+--------+----+-------+-------+
//
//	           1      1     1..128    1     1..128           keys: 1 to 16 of them, 2065 bytes at most
//	keys   +-------+------+--------+------+--------+---
//	       | count | size |  key   | size |  key   | ...
//	       +-------+------+--------+------+--------+---
//
//	         1     2      8     8                            1     2      8
//	S to C +---+--------+----+-------+              S to C +---+--------+----+
//	       | A |   16   | id | token |  granted            | T |   8    | id |  timed out
//	       | S |   16   | id | token |  ... a set          | B |   8    | id |  busy
//	       +---+--------+----+-------+                     | R |   8    | id |  released
//	         1     2      8     1                          | G |   8    | id |  ... a set
//	S to C +---+--------+----+------+                      | N |   8    | id |  not held
//	       | M |   9    | id | slot |  moved               | I |   8    | id |  indeterminate
//	       | E |   9    | id | code |  error               +---+--------+----+
//	       +---+--------+----+------+                        1     2      1
//	                                                S to C +---+--------+------+
//	                                                       | L |   1    | slot |  leader notice
//	                                                       +---+--------+------+
//
// The handshake is of fixed lengths; the answer is an HMAC-SHA256, the result 1 for right and 0 for wrong:
//
//	          8          2       1      1     16              32                   1
//	       +-----------+-----+------+------+-------+        +--------+         +--------+
//	S to C | TCKCLI3 0 |  3  | mode | slot | nonce | C to S | answer |  S to C | result |
//	       +-----------+-----+------+------+-------+        +--------+         +--------+
package codec
