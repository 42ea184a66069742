#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs Kubernetes' own Job and CronJob specs against `drover up`: first those that are on by default, then, with the gates of
# workload-aware scheduling, those that need them. FOCUS narrows the first run down to specs whose text matches.
set -euo pipefail
cd "$(dirname "$0")/.."
focus=${FOCUS:-'\[sig-apps\] (Job|CronJob)'}
procs=${PROCS:-8}

if [[ ! -x bin/e2e.test || test/upstream-e2e/go.mod -nt bin/e2e.test ]]; then
	echo "building Kubernetes' own specs (about five minutes when nothing is cached)" >&2
	(cd test/upstream-e2e && go test -c -o ../../bin/e2e.test .)
fi
ginkgo=bin/ginkgo
[[ -x $ginkgo ]] || (cd test/upstream-e2e && go build -o ../../$ginkgo github.com/onsi/ginkgo/v2/ginkgo)

dir=$(mktemp -d "${TMPDIR:-/tmp}/drover-e2e.XXXXXX")
plane=
stop() {
	[[ -z $plane ]] || { kill -TERM "$plane" 2>/dev/null && wait "$plane" || true; }
	plane=
}
trap 'stop; rm -rf "$dir"' EXIT

start() { # flags of drover up
	rm -rf "$dir/plane"
	bin/drover up --ephemeral --data-dir "$dir/plane" --port 0 "$@" >"$dir/up.log" 2>&1 &
	plane=$!
	until [[ -s $dir/plane/kubeconfig ]]; do
		kill -0 "$plane" 2>/dev/null || { cat "$dir/up.log" >&2; exit 1; }
		sleep 0.2
	done
}

specs() { # name, focus, skip, flags of the specs
	local name=$1 focus=$2 skip=$3
	shift 3
	mkdir -p dist/e2e
	"$ginkgo" run --procs="$procs" --timeout=50m --no-color --focus="$focus" --skip="$skip" bin/e2e.test -- \
		-kubeconfig "$dir/plane/kubeconfig" -provider=skeleton -minStartupPods=0 -report-dir="$PWD/dist/e2e/$name" "$@"
}

start
specs default "$focus" 'OffByDefault|\[Serial\]'
procs=1 specs serial "$focus.*\[Serial\]" 'OffByDefault'
stop

start --feature-gates=GenericWorkload=true,WorkloadWithJob=true
specs gates "$focus.*OffByDefault" '\[Serial\]'
