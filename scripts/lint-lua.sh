#!/usr/bin/env bash
# lint-lua.sh: luacheck over the Redis scripts, each with just the names it may
# know. A script is sent with the includes its header names before its body, so
# their functions look like undefined globals here and unused ones there. Told
# file by file, luacheck still finds a function that was used and not included.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh luacheck lua-check luacheck

failed=0
# Includes take from the budget, the only table that they share.
check() { # FILE OPTIONS...
	local file=$1
	shift
	luacheck --quiet --no-color --std lua51 --read-globals redis KEYS ARGV cjson "$@" --globals budget -- "$file" |
		sed '/^$/d; /^Total:/d' || failed=1
}

# An include has its file's name and may use other includes, which its scripts
# name before it: the tests of package lua see to that order.
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
