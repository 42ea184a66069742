#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs go vet and the linters. The linter itself is built once, at the version that hack/tools/go.mod names.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=bin/golangci-lint
if [[ ! -x $tool || hack/tools/go.mod -nt $tool ]]; then
	echo "building the linter (a few minutes when nothing is cached)" >&2
	mkdir -p bin
	go build -modfile=hack/tools/go.mod -o $tool github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	touch $tool
fi
go vet ./...
$tool run ./...
