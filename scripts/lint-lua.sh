#!/usr/bin/env bash
# lint-lua.sh: runs luacheck on the Redis scripts, and allows each script only the names that it may
# know. A script is sent with the functions of the files that it includes. So these functions look
# like undefined globals in the script, and like unused ones in the include. With a list of names for
# each file, luacheck still finds a function that is used but not included.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh luacheck lua-check luacheck

failed=0
# Includes take from the budget, which is the only table that they share.
check() { # FILE OPTIONS...
	local file=$1
	shift
	luacheck --quiet --no-color --std lua51 --read-globals redis KEYS ARGV cjson "$@" --globals budget -- "$file" |
		sed '/^$/d; /^Total:/d' || failed=1
}

# included prints the names that a file gets from its includes, and from theirs.
included() { # FILE
	local include
	for include in $(sed -n 's/^-- include //p' "$1"); do
		declared "lua/include/$include.lua"
		included "lua/include/$include.lua"
	done
}

declared() { # FILE
	sed -nE 's/^local (function )?([a-z_]+).*/\2/p' "$1"
}

while IFS= read -r file; do
	options=()
	for name in $(included "$file" | sort -u | grep -vx budget); do options+=("$name"); done
	if [[ $file == ./lua/include/* ]]; then
		for name in $(declared "$file"); do options+=(--ignore "211/$name"); done
	fi
	check "$file" ${options[@]+"${options[@]}"} # bash 3.2 takes an empty array for an unset one
done < <(find . -name '.?*' -prune -o -name '*.lua' -print | sort)
exit "$failed"
