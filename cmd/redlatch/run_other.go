//go:build !unix

package main

import "github.com/spf13/cobra"

func newRunCommand(*app) *cobra.Command {
	return &cobra.Command{
		Use:   "run NAME -- COMMAND",
		Short: "Run a command under a lock; not on this system",
		RunE: func(*cobra.Command, []string) error {
			return usageErrorf("run needs the process groups of Unix, which this system does not have")
		},
	}
}
