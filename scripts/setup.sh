#!/usr/bin/env bash
# Gets what Lazuli is built with: system packages through apt, and LibTorch from PyPI into .deps/torch. Safe to run again: what is there
# is left alone. LAZULI_TORCH=DIR (the folder with include/ and lib/) or Torch_DIR uses a LibTorch of your own.
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.11.0
torch_wheels=("torch==${torch_version}" 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cupti==13.0.*')
deps="$PWD/.deps"
problems=()

# "package:what shows that it is there": a program on PATH, a file, or python:MODULE. Programs and files from elsewhere count too.
requirements=(
  g++:g++ cmake:cmake ninja-build:ninja git:git make:make
  llvm-19-dev:/usr/lib/llvm-19/lib/libLLVMOrcJIT.a
  libzstd-dev:/usr/include/zstd.h zlib1g-dev:/usr/include/zlib.h
  libabsl-dev:/usr/include/absl/status/statusor.h
  libgtest-dev:/usr/include/gtest/gtest.h libgmock-dev:/usr/include/gmock/gmock.h
  libbenchmark-dev:/usr/include/benchmark/benchmark.h
  python3:python3 python3-venv:python:ensurepip
  binutils:readelf ca-certificates:/etc/ssl/certs/ca-certificates.crt
)

is_there() {
  case "$1" in
    python:*) python3 -c "import ${1#python:}, venv" 2>/dev/null ;;
    /*) [[ -e "$1" ]] ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

missing_packages() {
  local requirement
  for requirement in "${requirements[@]}"; do
    is_there "${requirement#*:}" || echo "${requirement%%:*}"
  done
}

# How to become root: "" when we are, "sudo" when it may be used, "none" otherwise.
root_command() {
  if [[ "$(id -u)" == 0 ]]; then
    echo ""
  elif command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
    echo sudo
  else
    echo none
  fi
}

install_packages() {
  local missing root
  mapfile -t missing < <(missing_packages)
  [[ ${#missing[@]} -gt 0 ]] || return 0
  root="$(root_command)"
  if [[ "$root" != none ]] && command -v apt-get >/dev/null; then
    echo "setup: installing ${missing[*]}"
    $root apt-get update -q || true
    # All at once, then one by one, so that one unknown package does not keep out the others.
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" ||
      for package in "${missing[@]}"; do
        $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$package" || true
      done
    hash -r
    mapfile -t missing < <(missing_packages)
  fi
  if [[ ${#missing[@]} -gt 0 ]]; then
    problems+=("system packages: ${missing[*]}" "    sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}")
  fi
}

check_cmake() {
  local version
  command -v cmake >/dev/null || return 0
  version="$(cmake --version | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')"
  if [[ "$(printf '3.25\n%s\n' "$version" | sort -V | head -n 1)" != 3.25 ]]; then
    problems+=("cmake 3.25 or newer; found $version" "    sudo apt-get install -y cmake   (or: pip install 'cmake>=3.25')")
  fi
}

check_own_torch() {
  if [[ ! -f "$1/include/ATen/ATen.h" || ! -e "$1/lib/libtorch_cpu.so" ]]; then
    problems+=("LibTorch: '$1' has no include/ATen/ATen.h and lib/libtorch_cpu.so" "    set LAZULI_TORCH to the folder that holds include/ and lib/")
  else
    echo "setup: LibTorch from $1"
  fi
}

pip_install_torch() {
  local venv="$deps/venv" staging="$deps/torch.partial"
  rm -rf "$staging"
  # A virtual environment, because system Pythons refuse to be installed into.
  [[ -x "$venv/bin/pip" ]] || python3 -m venv "$venv"
  local install=("$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$staging")
  # C++ needs the wheel's libraries only, so for a Python without a wheel another Python's will do.
  "${install[@]}" "${torch_wheels[@]}" ||
    "${install[@]}" --only-binary=:all: --implementation cp --python-version 3.12 --abi cp312 --abi none "${torch_wheels[@]}" || return 1
  rm -rf "$deps/torch"
  mv "$staging" "$deps/torch"
  echo "${torch_wheels[*]}" >"$deps/torch/.stamp"
}

install_torch() {
  if [[ -f "$deps/torch/.stamp" && "$(cat "$deps/torch/.stamp")" == "${torch_wheels[*]}" ]]; then
    return 0
  fi
  if ! command -v python3 >/dev/null || ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    problems+=("LibTorch ${torch_version}: needs Python 3 with venv to download it" "    make setup   (once the packages above are installed)")
    return 0
  fi
  echo "setup: LibTorch ${torch_version} into .deps/torch (about 1.2 GB)"
  mkdir -p "$deps"
  pip_install_torch || problems+=("LibTorch ${torch_version}: the download failed" \
    "    make setup   (again), or make LAZULI_TORCH=DIR with a LibTorch ${torch_version} of your own")
}

install_packages
check_cmake
if [[ -n "${LAZULI_TORCH:-}" ]]; then
  check_own_torch "$LAZULI_TORCH"
elif [[ -n "${Torch_DIR:-}" ]]; then
  check_own_torch "$(realpath -m "$Torch_DIR/../../..")"
else
  install_torch
fi

if [[ ${#problems[@]} -gt 0 ]]; then
  echo "setup: missing, and could not be installed:" >&2
  printf '  %s\n' "${problems[@]}" >&2
  exit 1
fi
echo "setup: done"
