#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints figures, and judges nothing. First the standalone plane, as a user has it; then our Job controller beside Kubernetes' own, both
# with the same load program on fresh API servers in turn. The load program is ../shared/peerbench, or $PEERBENCH; without it only the
# first part runs. PAIRS (3) says how often each side is measured, JOBS (1000) and PODS (5000) how much work there is.
set -euo pipefail
cd "$(dirname "$0")/.."
pairs=${PAIRS:-3} jobs=${JOBS:-1000} pods=${PODS:-5000}

echo "== the standalone plane, on $(nproc) CPUs"
go run ./test/bench

source=${PEERBENCH:-../shared/peerbench}
if [[ ! -d $source ]]; then
	echo "bench: there is no $source, so nothing is compared with upstream" >&2
	exit 0
fi
echo "building the load program (minutes when nothing is cached)" >&2
(cd "$source" && go build -o "$OLDPWD/bin/peerbench" .)

dir=$(mktemp -d "${TMPDIR:-/tmp}/drover-bench.XXXXXX")
server= controller=
stop() {
	for p in $controller $server; do
		kill "$p" 2>/dev/null && wait "$p" 2>/dev/null || true
	done
	server= controller=
}
trap 'stop; rm -rf "$dir"' EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

measure() { # side, mode, arguments: one line of figures into $dir/SIDE.MODE
	local side=$1 mode=$2 d
	shift 2
	d=$(mktemp -d "$dir/run.XXXXXX")
	bin/peerbench server -dir "$d" -port "$(free_port)" >"$d/server.log" 2>&1 &
	server=$!
	until [[ -s $d/kubeconfig ]] && bin/drover --kubeconfig "$d/kubeconfig" kubectl get namespace default >/dev/null 2>&1; do
		kill -0 "$server" 2>/dev/null || { cat "$d/server.log" >&2; exit 1; }
		sleep 0.2
	done
	case $side in
	ours) bin/drover-controller --kubeconfig "$d/kubeconfig" --manage=all --leader-elect=false --controllers=job >"$d/controller.log" 2>&1 & ;;
	upstream) bin/peerbench kcm -kubeconfig "$d/kubeconfig" -controllers job-controller >"$d/controller.log" 2>&1 & ;;
	esac
	controller=$!
	# Ready is when the first Job is through.
	bin/peerbench many -kubeconfig "$d/kubeconfig" -n 1 -pid "$controller" >/dev/null
	bin/peerbench "$mode" -kubeconfig "$d/kubeconfig" -pid "$controller" "$@" >"$d/out"
	python3 - "$d/out" >>"$dir/$side.$mode" <<'P'
import re, sys
text = open(sys.argv[1]).read()
def find(pattern):
    m = re.search(pattern, text)
    return m.group(1) if m else "0"
n = int(find(r": (\d+) in ")) or 1
writes = sum(int(m.group(2)) for m in re.finditer(r"^\s+(\w+ \S+)\s+(\d+)\s+\(", text, re.M)
             if m.group(1) in ("POST pods", "PATCH pods", "DELETE pods", "PUT jobs/status", "PATCH jobs/status"))
print(find(r"= ([\d.]+)/s"), find(r"\(([\d.]+) ms each\)"), round(writes / n, 3), find(r"peak rss (\d+)"), find(r"PUT jobs/status\s+(\d+)"), find(r"p50 ([\d.]+)s"))
P
	stop
	rm -rf "$d"
}

for ((i = 1; i <= pairs; i++)); do
	for side in ours upstream; do
		echo "pair $i of $pairs: $side" >&2
		measure $side many -n "$jobs"
		measure $side latency -n 20
		measure $side large -n "$pods" -parallel 2000
	done
done

echo
echo "== the Job controller beside upstream's; medians of $pairs pairs"
python3 - "$dir" "$jobs" "$pods" <<'P'
import statistics, sys
dir, jobs, pods = sys.argv[1:]
def median(side, mode, column):
    return statistics.median(float(line.split()[column]) for line in open(f"{dir}/{side}.{mode}"))
rows = [
    (f"{jobs} single-pod Jobs: Jobs/s", "many", 0), ("  controller CPU a Job, ms", "many", 1), ("  controller writes a Job", "many", 2), ("  peak memory, MB", "many", 3),
    ("one idle Job, create to Complete: p50, s", "latency", 5),
    (f"one Indexed Job of {pods} pods: pods/s", "large", 0), ("  controller CPU a pod, ms", "large", 1), ("  status writes", "large", 4), ("  peak memory, MB", "large", 3),
]
print("| work | ours | upstream | ratio |\n|--|--|--|--|")
for name, mode, column in rows:
    a, b = median("ours", mode, column), median("upstream", mode, column)
    print(f"| {name} | {a:g} | {b:g} | {a / b:.2f} |" if b else f"| {name} | {a:g} | {b:g} | |")
P
echo
echo "the floor: the fewest writes for $jobs single-pod Jobs, by a dumb client"
d=$(mktemp -d "$dir/run.XXXXXX")
bin/peerbench server -dir "$d" -port "$(free_port)" >"$d/server.log" 2>&1 &
server=$!
until [[ -s $d/kubeconfig ]] && bin/drover --kubeconfig "$d/kubeconfig" kubectl get namespace default >/dev/null 2>&1; do sleep 0.2; done
bin/peerbench floor -kubeconfig "$d/kubeconfig" -n "$jobs" | head -1
