#!/usr/bin/env bash
# need.sh COMMAND DEBIAN-PACKAGES [BREW-FORMULA]
#
# Makes sure that COMMAND can run. If it is missing, the script installs the packages if that needs
# nobody's consent: by apt-get as root, by brew on a Mac. Otherwise it says what to do, and fails. It
# prints nothing if COMMAND is there.
set -euo pipefail

command=$1 formula=${3:-$2}
read -ra packages <<<"$2"

have() { command -v "$1" >/dev/null; }

have "$command" && exit

if have apt-get && [ "$(id -u)" = 0 ]; then
	echo "installing ${packages[*]}, for $command" >&2
	export DEBIAN_FRONTEND=noninteractive
	# Targets that run at the same time install one after the other. A server that a package starts must not
	# inherit the lock (--close).
	apt=(flock --close /tmp/redlatch-need.lock apt-get -qq)
	install=("${apt[@]}" -y --no-install-recommends install "${packages[@]}")
	# A fresh machine has no package lists, and an old one may have outdated lists.
	"${install[@]}" >/dev/null 2>&1 || { "${apt[@]}" update && "${install[@]}" >/dev/null; } >&2
elif have brew; then
	echo "installing $formula, for $command" >&2
	brew install --quiet "$formula" >&2
else
	echo "$command is missing. Install it: on Debian or Ubuntu 'sudo apt-get install ${packages[*]}'," >&2
	echo "on a Mac 'brew install $formula', elsewhere by the means of your system." >&2
	exit 1
fi

have "$command" || { echo "installed ${packages[*]}, yet there is no $command in PATH" >&2; exit 1; }
