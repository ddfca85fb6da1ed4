#!/usr/bin/env bash
# Rehearses the release of a version: tags a copy of the last commit, as docs/releasing.md says, and
# uses it as a new program would. It changes and publishes nothing.
set -euo pipefail
version=${1:?usage: scripts/rehearse-release.sh v0.1.0}
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
module=github.com/redlatch/redlatch

if grep -q '^replace' "$root/go.mod"; then
	echo "go.mod must not replace anything: nobody could run $module/examples/server@$version" >&2
	exit 1
fi
if ! grep -q "^## $version\b" "$root/CHANGELOG.md"; then
	echo "CHANGELOG.md has no heading for $version" >&2
	exit 1
fi

git clone --quiet --no-hardlinks "$root" "$work/copy"
# Each nested module is released, or is named here because nobody imports it.
released='redlatchtest redlatchprom redlatchotel redlatchui cmd/redlatch'
internal='benchmarks examples/dashboard examples/fencing verify/rivals verify/telemetry'
found=$(cd "$work/copy" && find . -mindepth 2 -name go.mod | sed 's|^\./||; s|/go.mod$||' | sort)
if [ "$found" != "$(printf '%s\n' $released $internal | sort)" ]; then
	echo "this script and docs/releasing.md must name these modules, and no others:" $found >&2
	exit 1
fi
for name in $released; do
	go -C "$work/copy/$name" mod edit -require="$module@$version"
done
# go install refuses a program whose go.mod replaces anything.
for replaced in $(sed -n 's/^\(replace\)\{0,1\}[[:space:]]*\([^ ]*\) =>.*/\2/p' "$work/copy/cmd/redlatch/go.mod"); do
	go -C "$work/copy/cmd/redlatch" mod edit -dropreplace="$replaced" -require="$replaced@$version"
done
git -C "$work/copy" -c user.name=release -c user.email=release@localhost commit --quiet --all --message "Release $version"
git -C "$work/copy" -c tag.gpgSign=false tag "$version"
for name in $released; do
	git -C "$work/copy" -c tag.gpgSign=false tag "$name/$version"
done

# The modules come from the copy. Everything else comes from the module cache, or else from the proxy.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$work/copy.insteadOf" GIT_CONFIG_VALUE_0="https://$module"
GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
export GOPROXY GOPRIVATE="$module" GONOPROXY="$module" GONOSUMDB="$module" GOMODCACHE="$work/modules" GOBIN="$work/bin" GOWORK=off GOFLAGS=
mkdir "$work/program"
cd "$work/program"
cp "$root/examples/gettingstarted/main.go" .
cat >main_test.go <<'TEST'
package main

import (
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchotel"
	"github.com/redlatch/redlatch/redlatchprom"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/redlatchui"
)

func TestSave(t *testing.T) {
	collector, err := redlatchprom.New()
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := redlatchotel.NewMetrics()
	if err != nil {
		t.Fatal(err)
	}
	server := redlatchtest.New(t, redlatch.WithObserver(collector), redlatch.WithObserver(metrics))
	if err := save(t.Context(), server.Client, "42"); err != nil {
		t.Fatal(err)
	}
	if _, err := redlatchui.New(server.Redis, server.Client); err != nil {
		t.Fatal(err)
	}
}
TEST
go mod init example.com/program
go get "$module@$version" "$module/redlatchtest@$version" "$module/redlatchprom@$version" "$module/redlatchotel@$version" "$module/redlatchui@$version"
go mod tidy
go test -count=1 ./...
go build -o server "$module/examples/server"
(cd / && go install "$module/examples/server@$version") # as go run module@version: no go.mod of the program
(cd / && go install "$module/cmd/redlatch@$version" && "$GOBIN/redlatch" man | cmp - "$root/cmd/redlatch/man/redlatch.1")
echo "$version can be tagged."
