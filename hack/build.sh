#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the named commands into bin/, and shows that it moves: with nothing cached, Kubernetes takes about ten minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v go >/dev/null || { echo "hack/build.sh: Go is not installed; Drover needs the version that go.mod names" >&2; exit 1; }
mkdir -p bin
list=$(mktemp)
trap 'rm -f "$list"' EXIT
begin=$SECONDS
# Symbols for debuggers are left out: they double the size and most of the time that linking takes.
go build -v -ldflags="-s -w" -o bin/ "$@" 2> >(tee "$list" | grep -v -E '^(github.com|k8s.io|go\.|golang.org|google.golang.org|sigs.k8s.io|[a-z0-9./-]+)$' >&2 || true) &
build=$!
while kill -0 "$build" 2>/dev/null; do
	sleep 1
	elapsed=$((SECONDS - begin))
	if ((elapsed >= 5 && elapsed % 5 == 0)); then
		printf 'building: %d packages compiled, %dm%02ds (about 2,000 packages and ten minutes when nothing is cached)\n' \
			"$(wc -l <"$list")" $((elapsed / 60)) $((elapsed % 60)) >&2
	fi
done
wait "$build"
((SECONDS - begin < 5)) || printf 'built %s in %dm%02ds\n' "$*" $(((SECONDS - begin) / 60)) $(((SECONDS - begin) % 60)) >&2
