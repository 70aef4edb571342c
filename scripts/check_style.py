#!/usr/bin/env python3
"""Checks what reviews should not have to: layout (clang-format 14), file length, header openings, file names.

--fix rewrites files with clang-format instead. Without clang-format 14 that part is skipped and said so.
"""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["include", "runtime", "codegen", "guards", "tracer", "tests", "tools", "examples", "bench"]
MAX_LINES = 500
MAX_COLUMNS = 140


def sources():
    tracked = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"] + FOLDERS, cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode == 0:
        paths = [ROOT / name for name in tracked.stdout.splitlines()]
    else:
        paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return sorted(path for path in paths if path.suffix in (".h", ".cpp") and path.is_file())


def clang_format():
    for name in ("clang-format-14", "clang-format"):
        if shutil.which(name):
            version = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
            if re.search(r"version 14\.", version):
                return name
    return None


def problems_of(path):
    relative = path.relative_to(ROOT)
    lines = path.read_text().splitlines()
    if len(lines) > MAX_LINES:
        yield f"{relative}: {len(lines)} lines; split at {MAX_LINES}"
    if not re.fullmatch(r"[a-z0-9_]+\.(h|cpp)", path.name):
        yield f"{relative}: file names are snake_case"
    if path.suffix == ".h":
        if not lines or not lines[0].startswith("//"):
            yield f"{relative}:1: a header opens with its purpose"
        if "#pragma once" not in lines:
            yield f"{relative}: no #pragma once"
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS and "http" not in line:
            yield f"{relative}:{number}: {len(line)} columns; at most {MAX_COLUMNS}"
        if "\t" in line:
            yield f"{relative}:{number}: tab"
        if re.search(r"\b(TODO|FIXME|XXX)\b", line):
            yield f"{relative}:{number}: unfinished work marked in the source"


def main():
    files = sources()
    formatter = clang_format()
    if "--fix" in sys.argv[1:]:
        if formatter is None:
            print("clang-format 14 is not installed")
            return 2
        return subprocess.run([formatter, "-i"] + [str(f) for f in files]).returncode
    problems = [problem for path in files for problem in problems_of(path)]
    if formatter is None:
        print("style: clang-format 14 is not installed; layout not checked")
    else:
        run = subprocess.run([formatter, "--dry-run", "--Werror"] + [str(f) for f in files], capture_output=True, text=True)
        bad = sorted({line.split(":")[0] for line in run.stderr.splitlines() if "clang-format-violations" in line})
        problems += [f"{pathlib.Path(name).relative_to(ROOT)}: layout; run make format" for name in bad]
    print("\n".join(problems) if problems else f"style: {len(files)} files fine")
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
