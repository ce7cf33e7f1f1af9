// Command ticketingd is the daemon. It decides exit codes and what is printed; everything else is package server's. It
// runs on the main goroutine alone.
package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/ticketing-go/ticketing/server"
)

// signalsKept is how many signals may wait for the server: a stop behind a reload, and a second stop.
const signalsKept = 4

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run is the daemon with its surroundings as arguments; it returns the exit code.
func run(args, environ []string, out, errs io.Writer) int {
	debug.SetTraceback("crash") // a panic's own exit code is 2, which says that a setting is bad and a start is in vain
	settings, warnings, err := server.Load(args, environ)
	if err != nil {
		return fail(errs, err)
	}
	switch settings.Action {
	case server.ShowHelp:
		fmt.Fprint(out, server.Help())
		return 0
	case server.ShowVersion:
		version, commit := server.Version()
		fmt.Fprintln(out, "ticketingd", version, commit, runtime.Version())
		return 0
	case server.CheckConfig:
		for _, w := range warnings {
			fmt.Fprintln(errs, "warning:", w)
		}
		fmt.Fprintln(out, "settings are good")
		return 0
	}
	signal.Ignore(syscall.SIGPIPE) // else a reader of the log that goes away takes the daemon and its locks with it
	signals := make(chan os.Signal, signalsKept)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	log, endLog := server.OpenLog(&settings, errs)
	err = server.Run(settings, log, warnings, signals)
	switch written := endLog(); {
	case err == nil:
		return 0
	case !written: // nobody would read the one line either
		return server.ExitCode(err)
	}
	return fail(errs, err)
}

// fail prints the one line.
func fail(errs io.Writer, err error) int {
	fmt.Fprintln(errs, "ticketingd:", err)
	return server.ExitCode(err)
}
