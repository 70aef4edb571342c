#!/bin/sh
# Everything `make bench` does: builds and runs the C++ benchmarks, gets PyTorch for Python, and compares eager, torch.compile and
# Lazuli. Prints tables, and writes JSON to build/bench.
#
# usage: bench/run.sh [BUILD_DIR]    a configured build folder; default build/release
# BENCH_ARGS is passed on to compare.py, e.g. BENCH_ARGS="--workloads pointwise --rounds 1".
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$root/build/release}" 2>/dev/null && pwd) || {
  echo "bench/run.sh: no build folder '${1:-$root/build/release}'. Run \`make build\` first, or give the folder." >&2
  exit 2
}
out=$root/build/bench
venv=$root/.deps/bench
mkdir -p "$out"

"$root/scripts/python_env.sh"
# torch.compile's CPU code includes Python.h only for its wrapper; without the header it fails for every workload.
"$venv/bin/python" -c 'import os, sysconfig, sys; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
  echo "note: Python.h is missing, torch.compile will fail; install it with: apt-get install python3-dev"

cmake --build "$build" --target lazuli recording_bench overhead_bench compile_bench no_gain_bench roofline_bench cpp_workloads
for bench in recording_bench overhead_bench compile_bench; do
  "$build/bin/$bench" --benchmark_out="$out/$bench.json" --benchmark_out_format=json
done
"$build/bin/no_gain_bench" --json "$out/no_gain.json"
"$build/bin/roofline_bench" --json "$out/roofline.json"
# shellcheck disable=SC2086
"$venv/bin/python" "$root/bench/compare.py" --lib "$build/lib/liblazuli.so" --cpp "$build/bin/cpp_workloads" --out "$out/compare.json" ${BENCH_ARGS:-}
echo "results as JSON: $out"
