#!/usr/bin/env python3
"""Runs a program that computes while it ends, eagerly and preloaded, and compares what it prints and its exit status.

usage: run.py PROGRAM LIBLAZULI
"""
import os
import subprocess
import sys

WAYS = ["static", "local static", "thread_local", "handler", "pointer", "thread in a handler", "freed in a handler", "quick", "exit in a thread"]
MODES = {
    "in the background": {},
    "at once": {"LAZULI_ASYNC": "0"},
    "of all threads": {"LAZULI_ASYNC": "0", "LAZULI_THREADS": "1"},
    "by ATen": {"LAZULI_ASYNC": "0", "LAZULI_BACKEND": "aten"},
}
REPEATS = 2


def run(program, way, extra):
    env = {name: value for name, value in os.environ.items() if not name.startswith("LAZULI") and name != "LD_PRELOAD"}
    done = subprocess.run([program, way], env={**env, **extra}, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def main():
    program, library = sys.argv[1:]
    failures = []
    for way in WAYS:
        status, printed, _ = run(program, way, {})
        if len(printed.splitlines()) != 2 or status < 3:
            sys.exit(f"{way}: the program itself ended with {status} and printed\n{printed}")
        for mode, extra in MODES.items():
            for _ in range(REPEATS):
                preloaded = run(program, way, {"LD_PRELOAD": library, "LAZULI": "1", "LAZULI_DISK_CACHE": "0", **extra})
                if preloaded[:2] != (status, printed):
                    failures.append(f"{way}, compiled {mode}: status {preloaded[0]}, not {status}\n{preloaded[1]}{preloaded[2]}")
    print(f"{len(WAYS)} ways to end, {len(MODES)} modes, {REPEATS} times: {len(failures)} failures")
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
