package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newManCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "man",
		Short:   "Print the manual page, in the format of man(1)",
		Long:    "Print the manual page of all commands, in the format of man(1). Save it as redlatch.1 in a directory man1 of MANPATH.",
		Example: "  redlatch man > /usr/local/share/man/man1/redlatch.1",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return writeMan(a.out, cmd.Root()) },
	}
}

// manEnvironment and manExit are what no command says of itself.
var (
	manEnvironment = [][2]string{
		{"REDIS_URL", "URL of Redis, if there is no --redis. It may contain the password."},
		{"REDIS_USERNAME", "Name of the user in Redis, if neither --user nor the URL has one."},
		{"REDIS_PASSWORD", "Password, if neither --password-file nor REDIS_URL has one."},
		{"REDIS_SENTINEL_USERNAME, REDIS_SENTINEL_PASSWORD", "User and password of sentinels."},
		{"REDLATCH_PREFIX", "Text before all names, if there is no --prefix."},
		{"NO_COLOR", "If it is not empty, redlatch top shows no colours."},
	}
	manExit = [][2]string{
		{"0", "Success."},
		{fmt.Sprint(exitNo), "Somebody else has the lock, there is nothing to change, show --alive finds no live holder, ui cannot listen on its address, or doctor found a problem."},
		{fmt.Sprint(exitUsage), "Wrong usage."},
		{fmt.Sprint(exitUnavailable), "Redis is not available, or refuses."},
		{fmt.Sprint(exitSoftware), "A bug of redlatch."},
		{fmt.Sprint(exitLost), "The lock was lost while the command of redlatch run ran."},
		{fmt.Sprintf("%d, %d", exitCannotRun, exitNotFound), "The command of redlatch run cannot run, or was not found."},
		{fmt.Sprintf("%d+n", exitSignal), "Signal n ended the command of redlatch run, or redlatch itself."},
		{"other", "The exit code of the command of redlatch run."},
	}
)

// writeMan writes one page for all commands. It has no date, so that the same program makes the
// same page.
func writeMan(w io.Writer, root *cobra.Command) error {
	m := &manPage{}
	m.macro(`.TH REDLATCH 1 "" "redlatch" "User Commands"`)
	m.macro(".SH NAME")
	m.text("redlatch - " + strings.ToLower(root.Short[:1]) + root.Short[1:])
	m.macro(".SH SYNOPSIS")
	m.text("redlatch COMMAND [ARGUMENT...] [OPTION...]")
	m.macro(".SH DESCRIPTION")
	m.paragraphs(root.Long)
	m.macro(".SH COMMANDS")
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() && cmd.Name() != "help" {
			m.command(cmd)
		}
	}
	m.macro(".SH OPTIONS OF ALL COMMANDS")
	m.flags(root.PersistentFlags())
	m.macro(".SH ENVIRONMENT")
	m.terms(manEnvironment)
	m.macro(".SH EXIT STATUS")
	m.terms(manExit)
	m.macro(".SH SEE ALSO")
	m.text("flock(1), redis-cli(1), https://github.com/redlatch/redlatch/blob/main/docs/command-line.md")
	_, err := io.WriteString(w, m.b.String())
	return err
}

type manPage struct{ b strings.Builder }

func (m *manPage) macro(line string) { m.b.WriteString(line + "\n") }

// text writes text whose line breaks have no meaning.
func (m *manPage) text(text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		line = strings.ReplaceAll(strings.ReplaceAll(line, `\`, `\e`), "-", `\-`)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		m.macro(line)
	}
}

func (m *manPage) paragraphs(text string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			m.macro(".PP")
		}
		m.text(paragraph)
	}
}

// terms writes words with their meanings.
func (m *manPage) terms(terms [][2]string) {
	for _, term := range terms {
		m.macro(".TP")
		m.macro(".B")
		m.text(term[0])
		m.text(term[1])
	}
}

func (m *manPage) command(cmd *cobra.Command) {
	use := strings.Replace(cmd.UseLine(), " [flags]", "", 1)
	m.macro(".SS " + strings.ReplaceAll(use, "-", `\-`))
	if cmd.Long != "" {
		m.paragraphs(cmd.Long)
	} else {
		m.paragraphs(cmd.Short + ".")
	}
	if len(cmd.Aliases) > 0 {
		m.macro(".PP")
		m.text("Other name: " + strings.Join(cmd.Aliases, ", ") + ".")
	}
	m.flags(cmd.LocalNonPersistentFlags())
	if cmd.HasExample() {
		m.macro(".PP")
		m.macro("Examples:")
		m.macro(".PP")
		m.macro(".nf")
		m.macro(".RS 4")
		m.text(cmd.Example)
		m.macro(".RE")
		m.macro(".fi")
	}
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			m.macro(".PP")
			m.text(child.CommandPath() + ": " + child.Short + ".")
		}
	}
}

func (m *manPage) flags(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		names := "--" + f.Name
		if f.Shorthand != "" {
			names = "-" + f.Shorthand + ", " + names
		}
		if value != "" {
			names += " " + strings.ToUpper(value)
		}
		switch f.DefValue {
		case "", "0", "false", "[]":
		default:
			usage += " (default " + f.DefValue + ")"
		}
		m.terms([][2]string{{names, usage}})
	})
}
