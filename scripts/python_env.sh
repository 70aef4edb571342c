#!/usr/bin/env bash
# Puts PyTorch for Python, of LibTorch's version, into .deps/bench when it is not there: what benchmarks and PyTorch's operator database need.
set -euo pipefail
venv=$(cd "$(dirname "$0")/.." && pwd)/.deps/bench
if ! "$venv/bin/python" -c 'import torch, numpy, sys; sys.exit(torch.__version__.split("+")[0] != "2.11.0")' 2>/dev/null; then
  echo "Getting PyTorch 2.11.0 for Python into .deps/bench (about 5 GB, once)"
  rm -rf "$venv"
  python3 -m venv "$venv" || {
    echo "scripts/python_env.sh: python3 cannot make a virtual environment. Install it with: apt-get install python3-venv" >&2
    exit 2
  }
  "$venv/bin/pip" install -q --disable-pip-version-check torch==2.11.0 numpy
fi
