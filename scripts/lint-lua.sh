#!/usr/bin/env bash
# lint-lua.sh: runs luacheck on the Redis scripts, and allows each script only the names that it may
# know. A script is sent with the includes that its header names before its body. So the functions of
# the includes look like undefined globals in the script, and like unused ones in the include. With
# a list of names for each file, luacheck still finds a function that is used but not included.
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

# An include has the name of its file. It may use other includes, which its scripts must name before
# it. The tests of package lua check that order.
names=()
for include in lua/include/*.lua; do
	[ -e "$include" ] && names+=("$(basename "$include" .lua)")
done

while IFS= read -r file; do
	if [[ $file == ./lua/include/* ]]; then
		check "$file" ${names[@]+"${names[@]}"} --ignore "211/$(basename "$file" .lua)"
	else
		read -ra includes < <(sed -n 's/^-- include //p' "$file" | tr '\n' ' ') || true
		check "$file" ${includes[@]+"${includes[@]}"} # bash 3.2 takes an empty array for an unset one
	fi
done < <(find . -name '.?*' -prune -o -name '*.lua' -print | sort)
exit "$failed"
