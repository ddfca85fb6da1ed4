#!/usr/bin/env bash
# browser.sh
#
# Makes sure that the tests of redlatchui can run: Chromium, and axe-core, which finds problems of
# accessibility. axe-core is fetched once, into .cache/axe. It is not in the repository, because only
# these tests need it. All remarks go to stderr.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
version=4.14.1
sha512=1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5

have() { command -v "$1" >/dev/null; }

have chromium || have chromium-browser || have google-chrome ||
	"$root/scripts/need.sh" chromium 'chromium fonts-dejavu-core' chromium

dir=$root/.cache/axe/$version
[ -f "$dir/axe.min.js" ] && exit

"$root/scripts/need.sh" npm npm node
work=$dir.partial
rm -rf "$work"
mkdir -p "$work"
# npm pack runs no script of the package.
(cd "$work" && npm pack --silent "axe-core@$version" >/dev/null)
sum() { if have sha512sum; then sha512sum "$1"; else shasum -a 512 "$1"; fi; }
found=$(sum "$work/axe-core-$version.tgz")
if [ "${found%% *}" != "$sha512" ]; then
	echo "axe-core $version has the SHA-512 ${found%% *}, not $sha512" >&2
	exit 1
fi
tar -xzf "$work/axe-core-$version.tgz" -C "$work" --strip-components=1 package/axe.min.js package/LICENSE
rm "$work/axe-core-$version.tgz"
rm -rf "$dir"
mv "$work" "$dir" # a run that was interrupted leaves nothing that looks complete
