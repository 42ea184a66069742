#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts a plane of its own, runs the manifests of examples/ on it, shows how they fare and what they print, and stops it.
# Exits 0 only if every Job has ended as its manifest says (annotation examples.drover.dev/expect, else Complete).
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d "${TMPDIR:-/tmp}/drover-demo.XXXXXX")
drover() { bin/drover --data-dir "$dir/plane" "$@"; }
say() { printf '\n== %s\n' "$*"; }

cleanup() {
	[[ -n ${watcher:-} ]] && kill "$watcher" 2>/dev/null && wait "$watcher" 2>/dev/null || true
	if [[ -n ${plane:-} ]] && kill -0 "$plane" 2>/dev/null; then
		say "Stopping the plane"
		kill -TERM "$plane"
		wait "$plane" || true
	fi
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say "Starting a plane in $dir (etcd, kube-apiserver, scheduler, controllers and a node in one process)"
bin/drover up --ephemeral --data-dir "$dir/plane" --port 0 &
plane=$!
until [[ -s $dir/plane/kubeconfig ]]; do
	kill -0 "$plane" 2>/dev/null || { echo "the plane has not come up" >&2; exit 1; }
	sleep 0.1
done

say "Applying examples/"
drover apply -f examples/

say "Progress"
bin/drover --data-dir "$dir/plane" ls jobs --watch & # not the function: what is ended below is the process itself
watcher=$!
mapfile -t jobs < <(drover ls jobs -o name)
for job in "${jobs[@]}"; do
	drover wait "$job" --timeout 5m >/dev/null 2>&1 || true # how it ended is looked at below
done
kill "$watcher" 2>/dev/null && wait "$watcher" 2>/dev/null || true
watcher=

failed=0
for job in "${jobs[@]}"; do
	say "What $job has printed"
	drover logs "$job" --all 2>&1 | cut -c1-160 || true # a Job that was stopped has no pods left to ask
done
say "Results"
drover ls jobs
for job in "${jobs[@]}"; do
	want=$(drover kubectl get "$job" -o 'jsonpath={.metadata.annotations.examples\.drover\.dev/expect}')
	got=$(drover kubectl get "$job" -o 'jsonpath={range .status.conditions[?(@.status=="True")]}{.type}: {.reason}{"\n"}{end}' |
		grep -E '^(Complete|Failed): ' || echo "still going on")
	if [[ $got != "${want:-Complete: CompletionsReached}" ]]; then
		echo "$job: $got, and ${want:-Complete} was expected" >&2
		failed=1
	fi
done
((failed)) || echo "Every Job has ended as it should."
exit $failed
