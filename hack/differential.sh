#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the histories of test/differential against Kubernetes' own controllers and against ours, and compares. RUN narrows it
# down to histories whose name matches. It takes about three minutes, after the build.
set -euo pipefail
cd "$(dirname "$0")/.."
exec go test -count=1 -timeout 15m ${RUN:+-v -run "TestHistories/.*/$RUN"} ./test/differential
