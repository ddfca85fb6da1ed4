package main

import (
	"fmt"
	"os"
	"strings"
)

// readEquivalents reads the list of generated mutants that change nothing a test could see, by
// their identity, with the reasons:
//
//	@@ internal/pubsub/hub.go Hub.wakeCommander
//	-case h.kick <- struct{}{}:
//	+case h.kick <- struct{}{}, true:
//	why: one sentence
//
// Lines that begin with # are comments.
func readEquivalents(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	why := map[string]string{}
	identity := ""
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		reason, isReason := strings.CutPrefix(line, "why: ")
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "@@ ") && identity == "":
			identity = line
		case identity == "":
			return nil, fmt.Errorf("%s:%d: a mutant begins with @@", file, i+1)
		case isReason && reason != "":
			why[identity] = reason
			identity = ""
		case line[0] == '-' || line[0] == '+':
			identity += "\n" + line[:1] + strings.TrimSpace(line[1:])
		default:
			return nil, fmt.Errorf("%s:%d: neither a line of a mutant nor its reason", file, i+1)
		}
	}
	if identity != "" {
		return nil, fmt.Errorf("%s: the last mutant has no reason", file)
	}
	return why, nil
}
