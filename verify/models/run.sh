#!/usr/bin/env bash
# run.sh [MODEL]
#
# Checks the models with Spin: each as it is, and each twin, in which one guard is
# removed by its symbol. A model must have no error, every statement and claim of
# it must have been reached, and the search must have been complete; a twin must
# have the error that its guard prevents. Prints a table and fails otherwise.
set -euo pipefail
cd "$(dirname "$0")"
../../scripts/need.sh spin spin
../../scripts/need.sh gcc 'gcc libc6-dev' gcc

# model, the symbols it is built with, and what has to be found: nothing, an
# assertion by its name, or a waiter that waits_for_ever: a cycle in which the claim's
# promise is not kept.
runs='
wake    -                                          nothing
wake    RELIABLE,NO_POLL                           nothing
wake    NO_POLL                                    waits_for_ever
wake    RELIABLE,NO_POLL,NO_SECOND_LOOK            waits_for_ever
wake    RELIABLE,NO_POLL,NO_LOOK_AFTER_RESUBSCRIBE waits_for_ever
wake    RELIABLE,NO_POLL,NO_LEASE_END              waits_for_ever

acquire -                                          nothing
acquire NO_END                                     lock_stays
acquire ONE_RELEASE                                lock_stays
acquire EARLY_GUESS                                lock_stays
acquire LAST_ONLY                                  lock_stays
acquire FIRST_LANDING                              lock_stays
acquire FLYING_AFTER                               lock_stays
acquire COUNTS_UP                                  lock_stays
acquire COPY_TAKES_FENCE                           wrong_fence

lease   -                                          nothing
lease   COUNTED_FROM_REPLY                         trusts_in_vain
lease   NO_MARGIN                                  trusts_in_vain
lease   UNKNOWN_EXTENDS                            trusts_in_vain
lease   RENEW_ANY_OWNER                            trusts_in_vain
lease   RENEW_CREATES                              lock_comes_back
lease   RELEASE_ANY_OWNER                          trusts_in_vain
lease   SAME_ID                                    false_loss
lease   NO_STOP                                    false_loss

fair    -                                          nothing
fair    BELIEVES_MESSAGE                           two_holders
fair    NO_ALIVE_CHECK                             dead_cost_each
fair    NO_HELP                                    waits_for_ever
fair    NO_REQUEUE                                 waits_for_ever
fair    NO_GRANT_IN_HEARTBEAT                      waits_for_ever
'

[ -z "${1:-}" ] || [ -e "$1.pml" ] || { echo "no model $1"; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check MODEL SYMBOLS EXPECTED writes one row of the table, and a complaint if it
# is not as expected, to files that are shown in the order of the list.
check() {
	local model=$1 symbols=$2 expected=$3 dir=$4 found states
	local -a define=() pan=(-DSAFETY) search=()
	mkdir -p "$dir"
	[ "$symbols" = - ] || define=(${symbols//,/ }) && define=("${define[@]/#/-D}")
	if grep -q '^ltl' "$model.pml"; then pan=(-DNFAIR=3) search=(-a -f); fi
	(
		cd "$dir"
		# Spin's own code for pan is not free of warnings.
		spin "${define[@]}" -a "$here/$model.pml" >build 2>&1 &&
			gcc -O1 -w -DMEMLIM=3000 "${pan[@]}" -o pan pan.c >>build 2>&1 &&
			timeout 600 ./pan "${search[@]}" -m1000000 >out 2>&1
	) || true
	found=$(finding "$dir/out")
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$dir/out" 2>/dev/null)
	printf '%-8s %-42s %-15s %-15s %9s\n' "$model" "${symbols//,/ }" "$expected" "$found" "$states" >"$dir/row"
	[ "$found" = "$expected" ] || { cat "$dir/build" "$dir/out" >"$dir/complaint" 2>&1 || true; }
}

# finding says in one word what a search found. A statement that was not reached
# may be one that reports an error, or "otherwise nothing".
finding() {
	[ -s "$1" ] || { echo "no-build"; return; }
	if grep -q 'max search depth too small\|out of memory\|MEMLIM bound\|^pan: .*aborted' "$1"; then
		echo "incomplete"
	elif grep -q 'pan:1: assertion violated' "$1"; then
		sed -n 's/^pan:1: assertion violated \([a-z_]*\).*/\1/p' "$1"
	elif grep -q 'pan:1: acceptance cycle' "$1"; then
		echo "waits_for_ever"
	elif grep -q 'pan:1: invalid end state' "$1"; then
		echo "deadlock"
	elif ! grep -q 'errors: 0$' "$1" || grep -q 'Search not completed' "$1"; then
		echo "incomplete"
	elif grep '^	.*, state [0-9]*, "' "$1" | grep -qv '"-end-"\|"assert(0)"\|"(1)"\|"else"'; then
		echo "unreached"
	else
		echo "nothing"
	fi
}

here=$PWD
export here work
export -f check finding
printf '%-8s %-42s %-15s %-15s %9s\n' model without expected found states
n=0
while read -r model symbols expected; do
	[ -n "$model" ] && [ "${1:-$model}" = "$model" ] || continue
	echo "$model" "$symbols" "$expected" "$work/$((++n))"
done <<<"$runs" | xargs -P "$(getconf _NPROCESSORS_ONLN)" -L 1 bash -c 'check "$@"' check

failed=
for dir in $(ls -d "$work"/* | sort -V); do
	cat "$dir/row"
	if [ -e "$dir/complaint" ]; then failed=1; sed 's/^/    /' "$dir/complaint"; fi
done
[ -z "$failed" ] || { echo "not as expected, see above"; exit 1; }
