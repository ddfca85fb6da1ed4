#!/usr/bin/env bash
# sized-tests.sh
#
# Prints arguments for go test: a pattern for the tests that call redistest.Rounds, and their packages.
# make verify runs these tests at their full size. The script fails if something else calls Rounds,
# because make verify would not find it.
set -euo pipefail
cd "$(dirname "$0")/.."

calls='redistest[.]Rounds[(]'
files=$(grep -rlE "$calls" --include='*.go' --exclude-dir='.?*' . | grep -v '^./internal/test/redistest/')
for file in $files; do
	dir=$(dirname "$file")
	until [ -f "$dir/go.mod" ]; do dir=$(dirname "$dir"); done
	if [ "$dir" != . ]; then
		echo "$file: make verify finds redistest.Rounds in this module only" >&2
		exit 1
	fi
done
names=$(awk -v calls="$calls" '
	/^func / { name = match($0, /^func Test[A-Za-z0-9_]+/) ? substr($0, 6, RLENGTH - 5) : "" }
	$0 ~ calls {
		if (name == "") {
			print FILENAME ":" FNR ": make verify finds redistest.Rounds in test functions only" >"/dev/stderr"
			exit 1
		}
		print name
	}' $files | sort -u | paste -sd '|')
echo "-run ^($names)\$ $(dirname $files | sort -u | paste -sd ' ')"
