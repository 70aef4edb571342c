#!/usr/bin/env python3
"""Runs an unmodified program with threads eagerly and preloaded, and compares what it prints.

usage: run.py PROGRAM LIBLAZULI

With LAZULI_THREADS=1 the traces of its threads must be compiled, and most of their work must come from the cache; without, none of its
threads may record.
"""
import os
import re
import subprocess
import sys
import tempfile


def run(program, extra):
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        env = {name: value for name, value in os.environ.items() if not name.startswith("LAZULI") and name != "LD_PRELOAD"}
        if extra:
            env.update(extra, LAZULI_LOGS="guards,graph_breaks", LAZULI_LOG_FILE=log)
        done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            sys.exit(f"{extra}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        text = open(log).read() if os.path.exists(log) else ""
    compiled = len(re.findall(r"guards of trace #", text))
    cuts = len(re.findall(r"graph break after", text))
    return done.stdout, compiled, cuts


def numbers(text):
    return [float(word) for word in re.findall(r"-?\d+\.\d+", text)]


def main():
    program, library = sys.argv[1:]
    eager, _, _ = run(program, None)
    expected = numbers(eager)
    if len(expected) < 10:
        sys.exit(f"too few numbers:\n{eager}")
    preload = {"LD_PRELOAD": os.path.abspath(library), "LAZULI": "1"}
    results = {}
    for threads in "0", "1":
        for _ in range(3):
            text, compiled, cuts = run(program, {**preload, "LAZULI_THREADS": threads})
            got = numbers(text)
            if len(got) != len(expected) or any(abs(a - b) > 2e-5 * max(1, abs(a)) for a, b in zip(expected, got)):
                sys.exit(f"LAZULI_THREADS={threads}:\n{text}eagerly:\n{eager}")
        results[threads] = compiled, cuts
    print(f"without: {results['0'][0]} programs, {results['0'][1]} traces; with LAZULI_THREADS=1: {results['1'][0]}, {results['1'][1]}")
    # Three threads of twelve steps, each a trace.
    if results["1"][1] < results["0"][1] + 36 or results["1"][0] <= results["0"][0] or results["1"][0] * 2 > results["1"][1]:
        sys.exit("the threads' work was not compiled, or compiled too often")


if __name__ == "__main__":
    main()
