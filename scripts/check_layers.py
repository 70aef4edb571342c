#!/usr/bin/env python3
"""Fails when an include goes the wrong way.

Folders include leftward to rightward only: tracer -> guards -> codegen -> runtime. include/lazuli may be included by all and includes
nothing but itself and the standard library. LLVM stays in codegen; LibTorch's catch-all headers stay out of the library.

What LAZULI_PRECOMPILE precompiles must be included by who uses it, directly or through headers of the project: builds without it need that.
"""
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ORDER = ["tracer", "guards", "codegen", "runtime"]
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
HEAVY = ("torch/torch.h", "torch/all.h", "ATen/ATen.h", "torch/extension.h")
# By name that a file uses: beginnings of headers of which one must be there.
PRECOMPILED = {
    r"\bstd::string\b": ("string", "absl/", "ATen/", "c10/", "llvm/", "torch/", "lazuli/"),
    r"\bstd::vector\b": ("vector", "absl/", "ATen/", "c10/", "llvm/", "torch/"),
    r"\bat::Tensor\b": ("ATen/", "torch/csrc/autograd"),
    r"\b(c10::Dispatcher|c10::OperatorHandle)\b": ("ATen/core/dispatch/", "torch/library.h"),
    r"\b(torch::jit|c10)::Stack\b|\btorch::jit::(push|pop|drop|peek)\b": ("ATen/core/stack.h", "ATen/core/boxing", "ATen/core/dispatch", "torch/library.h"),
    r"\babsl::flat_hash_map\b": ("absl/container/flat_hash_map.h",),
    r"\babsl::Str(Cat|Append)\b": ("absl/strings/str_cat.h",),
}


@functools.lru_cache(maxsize=None)
def headers_of(path):
    """What the file includes, directly or through headers of the project."""
    found = set()
    for line in path.read_text().splitlines():
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(2)
        found.add(target)
        for root in (ROOT, ROOT / "include"):
            if (root / target).is_file():
                found |= headers_of(root / target)
    return frozenset(found)


def missing_includes_of(path):
    text = re.sub(r'//.*|"(\\.|[^"\\\n])*"', "", path.read_text())
    for name, beginnings in PRECOMPILED.items():
        match = re.search(name, text)
        if match and not any(header.startswith(beginnings) for header in headers_of(path)):
            yield f"{path.relative_to(ROOT)}: {match.group(0)} without an include of {beginnings[0]}"


def problems_of(path):
    relative = path.relative_to(ROOT)
    folder = relative.parts[0]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, target = match.groups()
        top = target.split("/")[0]
        where = f"{relative}:{number}: "
        if folder == "include":
            if quote == '"' and top != "lazuli":
                yield where + f"a public header includes the private {target}"
            if quote == "<" and "/" in target:
                yield where + f"a public header includes {target}; only the standard library is allowed"
            continue
        if top in ORDER and ORDER.index(top) < ORDER.index(folder):
            yield where + f"{folder} must not include {target}: includes go {' -> '.join(ORDER)}"
        if top == "llvm" and (folder != "codegen" or path.suffix == ".h" and not path.name.startswith("emit_llvm")):
            yield where + f"LLVM stays in codegen's sources, found {target}"
        if top in ("tests", "examples", "bench", "tools"):
            yield where + f"the library must not include {target}"
        if target in HEAVY:
            yield where + f"{target} is too heavy for the library; include per-operator headers"


def main():
    files = [p for folder in ORDER + ["include"] for p in sorted((ROOT / folder).rglob("*")) if p.suffix in (".h", ".cpp", ".def")]
    problems = [problem for path in files for problem in problems_of(path)]
    problems += [problem for path in files if path.suffix != ".def" and path.relative_to(ROOT).parts[0] in ORDER for problem in missing_includes_of(path)]
    print("\n".join(problems) if problems else f"layering: {len(files)} files fine")
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
