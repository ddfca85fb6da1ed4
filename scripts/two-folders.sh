#!/usr/bin/env bash
# two-folders.sh COMMAND...: runs a command in each folder of standard input, in two of them at the same time. Each
# line of output begins with the folder. The folders in which the command failed come last.
set -euo pipefail

failed=$(mktemp)
export failed
trap 'rm "$failed"' EXIT

run() { # COMMAND... FOLDER
	local folder=${*: -1}
	(cd "$folder" && "${@:1:$#-1}" 2>&1) | awk -v folder="$folder" '{ print folder ": " $0; fflush() }' ||
		echo "$folder" >>"$failed"
}
export -f run

xargs -n 1 -P 2 bash -o pipefail -c 'run "$@"' _ "$@"
if [ -s "$failed" ]; then
	echo "failed in:"
	cat "$failed"
	exit 1
fi
