package main

import (
	"os"

	"golang.org/x/term"
)

func isTerminalFile(file *os.File) bool { return term.IsTerminal(int(file.Fd())) }
