//go:build unix && !linux

package main

import "os"

func selfPath() (string, error) { return os.Executable() }
