#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints figures, and judges nothing. First the standalone plane, as a user has it; then our Job controller beside Kubernetes' own and
# beside test/bench/floor, the least that a controller on client-go can do, all with the same load program on fresh API servers in turn.
# The load program is ../shared/peerbench, or $PEERBENCH; without it only the first part runs. PAIRS (3) says how often each side is
# measured, JOBS (1000), PODS (5000) and KEPT (18000; 0: not at all) how much work there is.
set -euo pipefail
cd "$(dirname "$0")/.."
pairs=${PAIRS:-3} jobs=${JOBS:-1000} pods=${PODS:-5000} kept=${KEPT:-18000}

echo "== the standalone plane, on $(nproc) CPUs"
go run ./test/bench

source=${PEERBENCH:-../shared/peerbench}
if [[ ! -d $source ]]; then
	echo "bench: there is no $source, so nothing is compared with upstream" >&2
	exit 0
fi
echo "building the load program (minutes when nothing is cached)" >&2
(cd "$source" && go build -o "$OLDPWD/bin/peerbench" .)
go build -ldflags="-s -w" -o bin/floor ./test/bench/floor

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

begin() { # side: a fresh server in $d, and the side's controller on it, which has finished a first Job
	d=$(mktemp -d "$dir/run.XXXXXX")
	bin/peerbench server -dir "$d" -port "$(free_port)" >"$d/server.log" 2>&1 &
	server=$!
	until [[ -s $d/kubeconfig ]] && bin/drover --kubeconfig "$d/kubeconfig" kubectl get namespace default >/dev/null 2>&1; do
		kill -0 "$server" 2>/dev/null || { cat "$d/server.log" >&2; exit 1; }
		sleep 0.2
	done
	case $1 in
	ours) bin/drover-controller --kubeconfig "$d/kubeconfig" --manage=all --leader-elect=false --controllers=job >"$d/controller.log" 2>&1 & ;;
	upstream) bin/peerbench kcm -kubeconfig "$d/kubeconfig" -controllers job-controller >"$d/controller.log" 2>&1 & ;;
	floor) bin/floor -kubeconfig "$d/kubeconfig" >"$d/controller.log" 2>&1 & ;;
	esac
	controller=$!
	bin/peerbench many -kubeconfig "$d/kubeconfig" -n 1 -pid "$controller" >/dev/null
	local first=$EPOCHSECONDS # the load program names its namespaces by the second
	until ((EPOCHSECONDS > first)); do sleep 0.1; done
}

end() {
	stop
	rm -rf "$d"
}

load() { # side, row, mode, arguments: one line of figures into $dir/SIDE.ROW
	bin/peerbench "$3" -kubeconfig "$d/kubeconfig" -pid "$controller" "${@:4}" >"$d/out"
	python3 - "$d/out" >>"$dir/$1.$2" <<'P'
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
}

for ((i = 1; i <= pairs; i++)); do
	for side in ours upstream floor; do
		echo "round $i of $pairs: $side" >&2
		begin $side; load $side many many -n "$jobs"; end
		[[ $side == floor ]] || { begin $side; load $side latency latency -n 20; end; }
		begin $side; load $side large large -n "$pods" -parallel 2000; end
	done
done
if ((kept)); then
	for side in ours upstream; do
		echo "2,000 Jobs and $kept more pods stay: $side" >&2
		begin $side; load $side some many -n 2000; load $side kept large -n "$kept" -parallel 2000; end
	done
fi

echo
echo "== the Job controller beside upstream's and the floor; medians of $pairs rounds"
python3 - "$dir" "$jobs" "$pods" "$kept" <<'P'
import os, statistics, sys
dir, jobs, pods, kept = sys.argv[1:]
def median(side, mode, column):
    path = f"{dir}/{side}.{mode}"
    return statistics.median(float(line.split()[column]) for line in open(path)) if os.path.exists(path) else None
rows = [
    (f"{jobs} single-pod Jobs: Jobs/s", "many", 0), ("controller CPU a Job, ms", "many", 1), ("controller writes a Job, without events", "many", 2),
    ("peak memory, MB", "many", 3), ("one idle Job, create to Complete: p50, s", "latency", 5),
    (f"one Indexed Job of {pods} pods: pods/s", "large", 0), ("controller CPU a pod, ms", "large", 1), ("status writes", "large", 4),
    ("peak memory, MB", "large", 3), (f"2,000 Jobs and {kept} more pods, finished and kept: peak memory, MB", "kept", 3),
]
print("| work | ours | upstream | floor | ours/upstream | floor/upstream |\n|--|--|--|--|--|--|")
for name, mode, column in rows:
    a, b, c = (median(side, mode, column) for side in ("ours", "upstream", "floor"))
    show = lambda v, form="{:g}": "" if v is None else form.format(v)
    ratio = lambda v: show(v / b if v is not None and b else None, "{:.2f}")
    print(f"| {name} | {show(a)} | {show(b)} | {show(c)} | {ratio(a)} | {ratio(c)} |")
P
