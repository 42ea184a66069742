#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests: all of them, or one kind of them (unit, integration, e2e). The fast ones come first.
set -euo pipefail
cd "$(dirname "$0")/.."

# Packages that link Kubernetes are tested through the built binary, and not with the race detector: it would compile
# everything a second time.
light() { go list ./... | grep -v -E '/internal/controlplane($|/)|/cmd/drover$|/test/'; }

unit() {
	echo "== unit tests, with the race detector"
	light | xargs go test -race -count=1 -timeout 20m
}

integration() {
	echo "== integration tests, on the built binary"
	go test -count=1 -timeout 30m ./test/integration/...
}

e2e() {
	echo "== end-to-end tests, on the built binary"
	go test -count=1 -timeout 55m ./test/e2e/...
}

case "${1:-all}" in
unit | integration | e2e) "$1" ;;
all)
	unit
	hack/build.sh ./cmd/drover ./cmd/drover-controller
	integration
	e2e
	;;
*)
	echo "hack/test.sh: $1 is no kind of test; use unit, integration or e2e" >&2
	exit 2
	;;
esac
