// Command redlatch shows and uses the locks of redlatch from a shell. docs/command-line.md is its
// manual.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/display"
	"github.com/redlatch/redlatch/lockerr"
)

func main() {
	if isGuard(os.Args) {
		guardMain(os.Args[2:])
		return
	}
	os.Exit(newApp(os.Stdin, os.Stdout, os.Stderr).execute(os.Args[1:]))
}

// The exit codes are those of sysexits.h and of shells.
const (
	exitNo          = 1 // the answer is no: somebody else has the lock, or doctor found a problem
	exitUsage       = 64
	exitUnavailable = 69
	exitSoftware    = 70
	exitLost        = 75
	exitCannotRun   = 126
	exitNotFound    = 127
	exitSignal      = 128 // plus the number of the signal
)

// exitError ends the program with a code, and with a message unless err is nil.
type exitError struct {
	code int
	err  error
}

// Error returns the message.
func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap makes errors.Is find what is behind it.
func (e *exitError) Unwrap() error { return e.err }

func usageErrorf(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// exitCode returns the exit code for an error of redlatch or Redis.
func exitCode(err error) int {
	var exit *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, lockerr.ErrConfig):
		return exitUsage
	case errors.Is(err, lockerr.ErrLost):
		return exitLost
	case errors.Is(err, lockerr.ErrNotAcquired):
		return exitNo
	}
	return exitUnavailable
}

// execute runs one command line, and returns its exit code.
func (a *app) execute(args []string) int {
	logging.Disable() // go-redis would print each failed dial
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	err := root.Execute()
	var exit *exitError
	if err != nil && !(errors.As(err, &exit) && exit.err == nil) {
		fmt.Fprintln(a.errOut, message(err))
	}
	return exitCode(err)
}

// flagNames replaces the options of the library, which users of the command line do not know.
var flagNames = strings.NewReplacer(
	" (WithWaitTimeout)", " (--wait)", " (WithLease)", " (--lease)", " (WithMaxHold)", " (--max-hold)",
	" (WithDescription)", " (--description)", " (WithPrefix)", " (--prefix)",
)

// version is that of the module, or "devel" for a build that has none.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

// message returns the text of an error as one line without characters that control the terminal.
func message(err error) string {
	text := flagNames.Replace(display.Safe(err.Error()))
	const name = "redlatch: "
	if len(text) >= len(name) && text[:len(name)] == name {
		return text
	}
	return name + text
}

// app is what all commands share.
type app struct {
	in          io.Reader
	out, errOut io.Writer
	getenv      func(string) string
	conn        connectFlags

	limits      limits
	options     []redlatch.Option // more options of the client, for tests
	interrupted func()            // called when run has dealt with a ^C, for tests
	keyPressed  func(key string)  // called for each key of top, for tests
}

// limits are times that depend on the speed of the machine, or on that of a user. Tests set longer
// ones, because their machine may be busy.
type limits struct {
	connect    time.Duration // to reach Redis, and for one question to it
	release    time.Duration // to release the lock after the command; the lease ends it otherwise
	interrupts time.Duration // two ^C within this time kill the command
	reading    time.Duration // of top; a scan of a large database needs it
	complete   time.Duration // for names after the tab key
	slow       time.Duration // a round trip that takes longer is a warning of doctor
}

func newApp(in io.Reader, out, errOut io.Writer) *app {
	return &app{
		in: in, out: out, errOut: errOut, getenv: os.Getenv, interrupted: func() {}, keyPressed: func(string) {},
		limits: limits{connect: 5 * time.Second, release: 5 * time.Second, interrupts: 2 * time.Second, slow: 10 * time.Millisecond,
			reading: 30 * time.Second, complete: 500 * time.Millisecond,
		},
	}
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "redlatch",
		Short: "Use and show distributed locks on Redis",
		Long: "redlatch runs commands under the distributed locks of redlatch, and shows who holds them and who waits.\n\n" +
			"It finds Redis by --redis or REDIS_URL. The default is redis://127.0.0.1:6379.\n\n" +
			"redlatch --version prints the version.",
		Version:       version(),
		SilenceErrors: true, // execute prints them
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return &exitError{exitUsage, nil}
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageErrorf("%w; see %s --help", err, cmd.CommandPath())
	})
	root.Flags().Bool("version", false, "print the version, and end") // cobra's own has the name -v, which others need
	root.SetVersionTemplate("redlatch {{.Version}}\n")
	a.conn.register(root.PersistentFlags(), a.getenv, a.limits.connect)
	root.AddCommand(newRunCommand(a), newListCommand(a), newShowCommand(a), newWaitCommand(a), newUICommand(a))
	root.AddCommand(newReleaseCommand(a), newRemoveWaiterCommand(a), newResizeCommand(a), newDoctorCommand(a))
	root.AddCommand(newTopCommand(a), newManCommand(a))
	a.useCompletion(root)
	useUsageErrors(root)
	return root
}

// useUsageErrors makes wrong arguments end with the exit code of wrong usage.
func useUsageErrors(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageErrorf("%w; see %s --help", err, cmd.CommandPath())
			}
			return nil
		}
	}
	for _, child := range cmd.Commands() {
		useUsageErrors(child)
	}
}
