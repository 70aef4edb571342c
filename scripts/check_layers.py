#!/usr/bin/env python3
"""Fails when an include goes the wrong way.

Folders include leftward to rightward only: tracer -> guards -> codegen -> runtime. include/lazuli may be included by all and includes
nothing but itself and the standard library. LLVM stays in codegen; LibTorch's catch-all headers stay out of the library.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ORDER = ["tracer", "guards", "codegen", "runtime"]
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
HEAVY = ("torch/torch.h", "torch/all.h", "ATen/ATen.h", "torch/extension.h")


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
    print("\n".join(problems) if problems else f"layering: {len(files)} files fine")
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
