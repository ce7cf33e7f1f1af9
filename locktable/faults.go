package locktable

// Fault is a mistake that can be planted on purpose (build tag planted), one for each promise.
type Fault uint8

const (
	NoFault            Fault = iota
	DoubleGrant              // a held key is granted: two holders
	EarlyExpiry              // a lease ends at half its time
	TokenReused              // a token is issued twice
	TokenFalls               // a new leader's first tokens are below the last ones
	StaleRelease             // a release frees whoever holds the key now
	LostRelease              // a release is answered and does nothing
	LostWaiter               // a hand-over forgets who is next: the key is free with a queue
	QueueJumped              // a waiter joins at the head of the queue
	GrantAfterNo             // a waiter that was told that its wait is over is granted all the same
	AnswerBeforeCommit       // a grant is answered when it is proposed
	ClockToldTwice           // a leader tells the lease clock the same time again
)

var faultNames = [...]string{
	NoFault: "", DoubleGrant: "double-grant", EarlyExpiry: "early-expiry", TokenReused: "token-reused",
	TokenFalls: "token-falls", StaleRelease: "stale-release", LostRelease: "lost-release", LostWaiter: "lost-waiter",
	QueueJumped: "queue-jumped", GrantAfterNo: "grant-after-no", AnswerBeforeCommit: "answer-before-commit",
	ClockToldTwice: "clock-told-twice",
}

// faultEvery is how many opportunities there are to one fault.
const faultEvery = 23
