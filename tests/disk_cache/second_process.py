#!/usr/bin/env python3
"""Runs a program in several processes with one disk cache: the first compiles kernels, the second none. Looks at it with lazuli-cache.

usage: second_process.py LAZULI_CACHE PROGRAM ARGUMENTS...

The program prints "kernels compiled N" at its end. The second process also runs with the log category that tells why entries are not
used, and has nothing to tell. The third runs after every file of the cache was damaged: it compiles again, and its numbers are the same.
The fourth has another precision, and says that this is why it finds nothing.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def run(command, extra):
    """Number of kernels compiled, the losses, and what the log says."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        env = {name: value for name, value in os.environ.items() if not name.startswith("LAZULI")}
        env.update(extra, LAZULI_ASYNC="0", LAZULI_LOGS="cache", LAZULI_LOG_FILE=str(log))
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        text = log.read_text() if log.exists() else ""
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    compiled = re.search(r"kernels compiled +(\d+)", done.stdout)
    if compiled is None:
        sys.exit(f"no number of compiled kernels:\n{done.stdout}")
    return int(compiled.group(1)), re.findall(r"lazuli\s+step.*", done.stdout), text


def expect(condition, message):
    if not condition:
        sys.exit(f"second_process: {message}")


def entries_of(cache):
    return [path for path in cache.iterdir() if re.fullmatch("[0-9a-f]{32}", path.name)]


def damage(cache):
    """Flips a bit in the middle of every entry."""
    entries = entries_of(cache)
    for path in entries:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    return len(entries)


def check_tool(tool, cache, kernels):
    """list, explain and prune do what they say, and wrong usage is told apart from trouble."""
    def call(*arguments):
        done = subprocess.run([tool, "--dir", str(cache), *arguments], capture_output=True, text=True)
        return done.returncode, done.stdout

    entries = len(entries_of(cache))
    status, text = call("list")
    names = re.findall(r"^([0-9a-f]{32}) .*kernel +kernel \[", text, re.MULTILINE)
    expect(status == 0 and len(names) == kernels and f"{entries} entries" in text, f"list of {entries} entries: {text}")
    status, text = call("explain", names[0])
    expect(status == 0 and "\nisa " in text and "nearest entry: " in text, f"explain: {text}")
    expect(call("explain", "none")[0] == 1, "explain of an entry that is not there")
    expect(call("prune", "--days", "1", "--mb", "100") == (0, "removed 0 files, 0.0 MB\n"), "prune removed what is in use")
    status, text = call("prune", "--all")
    expect(status == 0 and text.startswith(f"removed {entries} files"), f"prune --all: {text}")
    expect(call("list")[1].startswith("0 entries"), "entries are left")
    expect([call(*wrong)[0] for wrong in ([], ["lists"], ["prune"], ["prune", "--mb", "x"], ["explain"])] == [2] * 5, "wrong usage")
    expect(subprocess.run([tool, "--help"], capture_output=True).returncode == 0, "--help")
    expect(subprocess.run([tool, "--dir", str(cache / "none"), "list"], capture_output=True).returncode == 1, "a folder that is not there")


def main():
    tool, *command = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        cache = pathlib.Path(folder) / "cache"
        env = {"LAZULI_CACHE_DIR": str(cache)}
        first, losses, _ = run(command, env)
        expect(first > 10, f"the first process compiled only {first} kernels")
        listed = subprocess.run([tool, "--dir", str(cache), "list"], capture_output=True, text=True).stdout
        kept = len(re.findall(" kernel  ", listed))
        expect(kept == first, f"{first} kernels were compiled, {kept} are kept")

        second, losses_again, log = run(command, env)
        expect(second == 0, f"the second process compiled {second} kernels:\n{log}")
        expect(losses == losses_again, f"losses differ: {losses} and {losses_again}")
        expect(log == "", f"the second process says\n{log}")

        verify = [tool, "--dir", str(cache), "verify"]
        expect(subprocess.run(verify, capture_output=True).returncode == 0, "lazuli-cache finds a sound cache unsound")
        damaged = damage(cache)
        found = subprocess.run(verify, capture_output=True, text=True)
        expect(found.returncode == 1 and f"{damaged} unusable" in found.stdout, f"lazuli-cache says {found.stdout}")
        third, losses_again, log = run(command, env)
        expect(third == first, f"{third} of {first} kernels were compiled after their files had been damaged")
        expect(losses == losses_again, f"losses differ: {losses} and {losses_again}")
        expect(log.count("it is cut short or damaged") == damaged, f"{damaged} files were damaged, the log says\n{log}")
        expect(subprocess.run(verify, capture_output=True).returncode == 0, "damaged entries were not replaced")

        strict, _, log = run(command, {**env, "LAZULI_PRECISION": "strict"})
        expect(strict > 0 and log.count("  precision: strict here, eager there\n") > 10, f"{strict} kernels, log\n{log}")
        check_tool(tool, cache, first + strict)
    print(f"{first} kernels compiled by the first process, none by the second, {third} after damage")


if __name__ == "__main__":
    main()
