#!/usr/bin/env bash
# clang-tidy (naming and a few bug patterns) on the given sources, or on the library's.
# usage: scripts/tidy.sh BUILD_DIR [FILE...]
set -euo pipefail
cd "$(dirname "$0")/.."
build="$1"
shift
tidy="$(command -v clang-tidy-14 || command -v clang-tidy)" || { echo "clang-tidy is not installed: apt-get install clang-tidy-14" >&2; exit 2; }
[[ $# -gt 0 ]] || set -- runtime/*.cpp codegen/*.cpp codegen/*/*.cpp guards/*.cpp tracer/*.cpp
printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 "$tidy" --quiet -p "$build" --warnings-as-errors='*'
