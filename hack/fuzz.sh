#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lets every fuzz target look for trouble for a while (FUZZTIME, default 1m), and runs the property tests over more seeds.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZTIME:-1m}
for pkg in $(go list ./internal/... | grep -v /controlplane); do
	for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
		echo "== $pkg $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$pkg"
	done
done
echo "== random histories of Jobs"
go test -count=1 -timeout 60m ./internal/controller -run WhateverHappens -seeds "${SEEDS:-5000}" -v
