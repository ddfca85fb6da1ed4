#!/usr/bin/env bash
# sized-tests.sh
#
# Prints a pattern for go test -run: the tests of the root package that call redistest.Rounds. make
# verify runs them at their full size. It fails if something else calls it, because make verify would
# not find it.
set -euo pipefail
cd "$(dirname "$0")/.."

calls='redistest\.Rounds\('
elsewhere=$(grep -rlE "$calls" --include='*_test.go' --exclude-dir='.?*' . | grep '/.*/' | grep -v '^./internal/test/redistest/' || true)
if [ -n "$elsewhere" ]; then
	echo "$elsewhere: make verify finds redistest.Rounds in the root package only" >&2
	exit 1
fi
names=$(awk -v calls='redistest[.]Rounds[(]' '
	/^func / { name = match($0, /^func Test[A-Za-z0-9_]+/) ? substr($0, 6, RLENGTH - 5) : "" }
	$0 ~ calls {
		if (name == "") {
			print FILENAME ":" FNR ": make verify finds redistest.Rounds in test functions only" >"/dev/stderr"
			exit 1
		}
		print name
	}' ./*_test.go | sort -u | paste -sd '|')
echo "^($names)\$"
