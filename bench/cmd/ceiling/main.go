// Command ceiling runs the reference server of package ceiling until it is told to stop. The client token, if any, is
// taken from the environment, as CLIENT_TOKENS.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/ticketing-go/ticketing/bench/ceiling"
	"github.com/ticketing-go/ticketing/codec"
)

func main() {
	addr := flag.String("bind", "127.0.0.1:5225", "client listener, `IP:port`")
	loops := flag.Int("loops", 2, "event loops")
	readBuffer := flag.Int("read-buffer", 64<<10, "read buffer of a loop, `bytes`")
	sendBuffer := flag.Int("send-buffer", 64<<10, "SO_SNDBUF of a connection, `bytes`")
	wire3 := flag.Bool("wire3", false, "speak wire 3, single keys only, instead of v1")
	flag.Parse()
	wire := codec.V1
	if *wire3 {
		wire = codec.V3
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	err := ceiling.Run(ctx, ceiling.Options{
		Addr: *addr, Token: []byte(os.Getenv("CLIENT_TOKENS")),
		Loops: *loops, ReadBuffer: *readBuffer, SendBuffer: *sendBuffer, Wire: wire,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
