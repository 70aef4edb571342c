#!/usr/bin/env python3
"""Runs an example program eagerly, with --lazuli, and preloaded, and compares the numbers that it prints.

usage: compare.py PROGRAM LIBLAZULI [--steps N] [--tolerance T] [--timeout S] [-- MORE OPTIONS OF THE PROGRAM]

Every run gets the same --steps and options. Lines that name milliseconds are left out, and so are those without a number. Two numbers are
equal when their distance is at most T times the larger, or two units of the last decimal printed. Under Lazuli at least one program must have
been compiled. LAZULI_* variables of the caller, such as LAZULI_BACKEND, reach the runs under Lazuli. Exit status: 0 if all is equal, 1 if
not, 2 if the command line is wrong.
"""
import argparse
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan\b|inf\b)")
TIMING = re.compile(r"\bms\b")
COMPILED = re.compile(r"^\[lazuli\] guards of trace #", re.MULTILINE)
RECOMPILED = re.compile(r"^\[lazuli\] Recompiling trace #", re.MULTILINE)
LIMIT = re.compile(r"^\[lazuli\] hit \w*recompile_limit.*", re.MULTILINE)


class Failure(Exception):
    """What went wrong, for the user."""


class Run:
    """One finished run of the program."""

    def __init__(self, name, lines, timing, log):
        self.name = name
        self.lines = lines
        self.timing = timing
        self.log = log


def environment(extra):
    eager = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD" and not name.startswith("LAZULI")}
    if extra is None:
        return eager
    given = {name: value for name, value in os.environ.items() if name.startswith("LAZULI") and name != "LAZULI"}
    return {**eager, **given, **extra}


def run(name, command, extra, timeout):
    """Runs the program with the variables of `extra`, and keeps what is to be compared."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        if extra is not None:
            extra = {**extra, "LAZULI_LOGS": "guards,recompiles", "LAZULI_LOG_FILE": str(log)}
        try:
            done = subprocess.run(command, env=environment(extra), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Failure(f"{name}: not done after {timeout:g} s: {' '.join(command)}") from None
        text = log.read_text() if log.exists() else ""
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise Failure(f"{name}: exit status {done.returncode}: {' '.join(command)}\n{last}")
    lines = done.stdout.splitlines()
    timing = [line for line in lines if TIMING.search(line)]
    return Run(name, [line for line in lines if NUMBER.search(line) and not TIMING.search(line)], timing, text + done.stderr)


def last_digit(number):
    """The unit of a printed number's last digit; 0 for a whole number, which is exact."""
    mantissa, _, exponent = number.lower().partition("e")
    if "." not in mantissa:
        return 0.0
    decimals = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - decimals)


def distance(left, right, tolerance):
    """How many times the allowed distance two printed numbers are apart."""
    a, b = float(left), float(right)
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    allowed = max(tolerance * max(abs(a), abs(b)), 2.001 * max(last_digit(left), last_digit(right)))
    return abs(a - b) / allowed if allowed > 0 else math.inf


def compare(eager, other, tolerance):
    """Raises Failure at the first line that differs. Returns how many numbers were compared, and the largest relative difference."""
    where = f"{eager.name} and {other.name} differ"
    count, largest = 0, 0.0
    for number, (left, right) in enumerate(zip(eager.lines, other.lines), 1):
        shown = f"\n  {eager.name}: {left}\n  {other.name}: {right}"
        if NUMBER.sub("#", left) != NUMBER.sub("#", right):
            raise Failure(f"{where} in the text of line {number}:{shown}")
        for a, b in zip(NUMBER.findall(left), NUMBER.findall(right)):
            count += 1
            if distance(a, b, tolerance) > 1:
                raise Failure(f"{where} in line {number}, {a} and {b}, by more than {tolerance:g}:{shown}")
            if float(a) != float(b) and max(abs(float(a)), abs(float(b))) > 0:
                largest = max(largest, abs(float(a) - float(b)) / max(abs(float(a)), abs(float(b))))
    if len(eager.lines) != len(other.lines):
        raise Failure(f"{where}: {len(eager.lines)} and {len(other.lines)} lines with numbers")
    if count == 0:
        raise Failure(f"{eager.name}: no number was printed, so nothing can be compared")
    return count, largest


def check_compiled(done):
    """What Lazuli logged of a run. Raises Failure if no program was compiled."""
    compiled = len(COMPILED.findall(done.log))
    if compiled == 0:
        raise Failure(f"{done.name}: Lazuli compiled nothing: the mode was not on, or nothing was recorded")
    limits = len(LIMIT.findall(done.log))
    return f"{compiled} programs, {len(RECOMPILED.findall(done.log))} recompiles, {limits} sites past the recompile limit"


def parse(arguments):
    more = []
    if "--" in arguments:
        split = arguments.index("--")
        arguments, more = arguments[:split], arguments[split + 1 :]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("library", type=pathlib.Path, help="liblazuli.so")
    parser.add_argument("--steps", type=int, default=6, help="training steps of each run (%(default)s)")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="relative difference allowed (%(default)g)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for each run (%(default)g)")
    options = parser.parse_args(arguments)
    for path in (options.program, options.library):
        if not path.is_file():
            parser.error(f"no such file: {path}")
    options.command = [str(options.program.resolve()), "--steps", str(options.steps)] + more
    return options


def main():
    options = parse(sys.argv[1:])
    preload = {"LD_PRELOAD": str(options.library.resolve()), "LAZULI": "1"}
    try:
        eager = run("eager", options.command, None, options.timeout)
        runs = [
            run("--lazuli", options.command + ["--lazuli"], {}, options.timeout),
            run("LD_PRELOAD", options.command, preload, options.timeout),
        ]
        print(f"eager: {' '.join(eager.timing)}")
        for other in runs:
            made = check_compiled(other)
            count, largest = compare(eager, other, options.tolerance)
            print(f"{other.name}: {count} numbers equal, largest relative difference {largest:.2g}; {made}; {' '.join(other.timing)}")
    except Failure as failure:
        print(f"FAILED: {options.program.name}: {failure}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
