#!/usr/bin/env bash
# Compares the training step of this program with a PyTorch version of the same models: alternating
# runs on the same cores, then a table of ratios.
#
#   bench/compare.sh TORCH_BENCH.py [PYTHON] [ROUNDS]
#
# TORCH_BENCH.py takes `--case grid|zinc|pep16 --threads N --steps N --compile 0|1` and prints one JSON
# line with train_ms, forward_ms and peak_rss_mb_train. Requires a release build and taskset. Every figure is
# compared with the better of the eager and the compiled form; COMPILE=0 skips the compiled form.
set -euo pipefail
torch=${1:?usage: bench/compare.sh TORCH_BENCH.py [PYTHON] [ROUNDS]}
python=${2:-python3}
rounds=${3:-3}
forms=$([ "${COMPILE:-1}" = 1 ] && echo "0 1" || echo 0)
top=$(cd "$(dirname "$0")/.." && pwd)
ours=$top/target/release/graph-diffuser
[ -x "$ours" ] || { echo "error: $ours not found; run cargo build --release" >&2; exit 2; }
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
# Keeps freed memory in the process: page faults otherwise cost PyTorch about a tenth of its speed.
export GLIBC_TUNABLES=glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=17179869184
for threads in 1 2; do
  cores=$([ "$threads" = 1 ] && echo 0 || echo 0,1)
  for case in grid zinc peptides; do
    name=$([ "$case" = peptides ] && echo pep16 || echo "$case")
    for _ in $(seq "$rounds"); do
      taskset -c "$cores" "$ours" bench "$case" --threads "$threads" --steps 15 --json | sed 's/^/ours /' >> "$rows"
      for form in $forms; do
        (cd "$(dirname "$torch")" && taskset -c "$cores" "$python" "$(basename "$torch")" --case "$name" \
          --threads "$threads" --steps 15 --compile "$form" 2> /dev/null) | sed 's/^/torch /' >> "$rows" || true
      done
    done
  done
done
"$python" - "$rows" <<'PY'
import collections, json, sys
seen = collections.defaultdict(list)
for line in open(sys.argv[1]):
    who, row = line.split(" ", 1)
    row = json.loads(row)
    case = {"pep16": "peptides"}.get(row["case"], row["case"])
    seen[case, row["threads"], who, row.get("compile", False)].append(row)
best = lambda rows, key: min(row[key] for row in rows if row.get(key) is not None)
print("| case | threads | train ms | PyTorch | ratio | forward ms | PyTorch | ratio | MB | PyTorch | ratio |")
print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
for case in ["grid", "zinc", "peptides"]:
    for threads in [1, 2]:
        ours = seen[case, threads, "ours", False]
        forms = [rows for form in (False, True) if (rows := seen[case, threads, "torch", form])]
        if not ours or not forms:
            continue
        cells = []
        for key, other in [("train_ms", "train_ms"), ("forward_ms", "forward_ms"), ("peak_rss_mb", "peak_rss_mb_train")]:
            a, b = best(ours, key), min(best(rows, other) for rows in forms)
            cells += [f"{a:.1f}", f"{b:.1f}", f"{b / a:.2f}"]
        print("|", " | ".join([case, str(threads), *cells]), "|")
PY
