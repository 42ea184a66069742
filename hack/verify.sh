#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails when something that is generated, or the module file, or the formatting, is not what it would be if made anew.
set -euo pipefail
cd "$(dirname "$0")/.."
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
git ls-files -z | xargs -0 -r cp --parents -t "$before" 2>/dev/null
go mod tidy
go generate ./...
stale=0
while IFS= read -r -d '' f; do
	cmp -s "$f" "$before/$f" || { echo "$f is stale: run go mod tidy and make generate, and commit what changed" >&2; stale=1; }
done < <(git ls-files -z)
unformatted=$(gofmt -l $(git ls-files '*.go'))
[[ -z $unformatted ]] || { printf 'not formatted:\n%s\n' "$unformatted" >&2; stale=1; }
exit $stale
