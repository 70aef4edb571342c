#!/usr/bin/env python3
"""Fails when liblazuli.so exports anything but the public lazuli:: names, needs LLVM at run time, or says where it was built."""
import re
import subprocess
import sys


def lines_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def main():
    library = sys.argv[1]
    names = lines_of("nm", "-DC", "--defined-only", "--format=just-symbols", library)
    ours = ("lazuli::", "typeinfo for lazuli::", "typeinfo name for lazuli::", "vtable for lazuli::")
    # Interposed for LAZULI_THREADS.
    foreign = [name for name in names if not name.startswith(ours) and name != "pthread_create"]
    needed = [line for line in lines_of("readelf", "-d", library) if "(NEEDED)" in line]
    clashing = [line.split("[")[1].rstrip("]") for line in needed if "libLLVM" in line]
    for name in foreign:
        print(f"exported: {name}")
    for name in clashing:
        print(f"needed at run time: {name}")
    internal = [name for name in names if name.startswith(("lazuli::runtime", "lazuli::codegen", "lazuli::guards", "lazuli::tracer"))]
    for name in internal:
        print(f"exported internal: {name}")
    with open(library, "rb") as file:
        paths = set(re.findall(rb"/[\w./-]+/include/(?:c10|ATen|torch)/[\w./-]+", file.read()))
    for path in sorted(paths):
        print(f"a header by where it lay: {path.decode()}")
    if not any(name.startswith("lazuli::DeviceMode") for name in names):
        print("lazuli::DeviceMode is not exported")
        return 1
    return 1 if foreign or clashing or internal or paths else 0


if __name__ == "__main__":
    sys.exit(main())
