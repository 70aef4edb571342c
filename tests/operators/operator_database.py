"""PyTorch's own operator database (torch.testing), eagerly and with Lazuli: results, gradients and errors must be the same.

Each sample runs eagerly, twice, and three times in Lazuli's mode: recorded, compiled, found again. Layouts, dtypes and devices must be
equal, values within the tolerances of PyTorch's own tests. Samples whose two eager results differ are counted and left out. A sample that
ends the process is a difference, too. Needs PyTorch for Python and NumPy: `make operators` gets them.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import types
import unittest

VARIANTS = ["function", "method", "inplace", "out", "noncontiguous", "double_backward", "errors"]
RUNS = 3
WITHOUT_CONTENT = {"empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty_permuted"}
# Relative and absolute, after torch.testing.
TOLERANCES = {"float32": (1.3e-5, 3e-5), "float64": (1e-7, 1e-7), "bfloat16": (1.6e-2, 1e-2), "float16": (2e-3, 2e-3), "complex32": (2e-3, 2e-3),
              "complex64": (1e-4, 1e-4), "complex128": (1e-7, 1e-7)}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lib", required=True, help="liblazuli.so")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtypes", default="float32", help="a comma-separated list")
    parser.add_argument("--variant", default="function", choices=VARIANTS)
    parser.add_argument("--samples", type=int, default=12, help="of each operator at most, spread over all")
    parser.add_argument("--only", help="the operator with this name")
    parser.add_argument("--shard", default="0/1", help="K/N: every Nth operator, from the Kth on, for N processes side by side")
    parser.add_argument("--seconds", type=float, default=3600, help="stop after so many")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    match = re.fullmatch(r"(\d+)/(\d+)", args.shard)
    if not match or int(match[1]) >= int(match[2]):
        parser.error(f"--shard {args.shard}: K/N with K below N, such as 0/4")
    args.shard = int(match[1]), int(match[2])
    return args


class Checker:
    """One process's part of the work: the operators from `args.start` on. Events go to the file `args.worker`, a line of JSON each."""

    def __init__(self, args):
        # PyTorch's helpers for its own tests want a package that only they use.
        sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))
        import torch
        from torch.utils import _pytree
        self.args, self.torch, self.pytree = args, torch, _pytree
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.ops.load_library(args.lib)
        self.lazuli = torch.ops.lazuli
        self.events = open(args.worker, "a", encoding="utf-8")
        self.counts = collections.Counter()

    def note(self, **event):
        self.events.write(json.dumps(event) + "\n")
        self.events.flush()

    def leaves(self, values):
        return self.pytree.tree_flatten(values)[0]

    def tensors(self, values):
        return [value for value in self.leaves(values) if isinstance(value, self.torch.Tensor)]

    def copy(self, value):
        """A tensor of the same layout with memory of its own; anything else as it is."""
        torch = self.torch
        if not isinstance(value, torch.Tensor):
            return value
        copied = value.detach().clone()
        if value.layout == torch.strided and copied.stride() != value.stride() and value.numel() > 0 and 0 not in value.stride():
            copied = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value.detach())
        return copied.requires_grad_(value.requires_grad)

    def call(self, function, sample, grad):
        """Results of the operator and, if wanted, the gradients of its operands."""
        torch = self.torch
        torch.manual_seed(7)
        operands = self.pytree.tree_map(self.copy, [sample.input, list(sample.args), dict(sample.kwargs)])
        results = self.leaves(function(operands[0], *operands[1], **operands[2]))
        wanted = [t for t in self.tensors(operands) if t.requires_grad] if grad else []
        outputs = [t for t in results if isinstance(t, torch.Tensor) and t.grad_fn is not None]
        if wanted and outputs:
            loss = sum(((t.abs() if t.is_complex() else t).float() * 1.5).sum() for t in outputs)
            results = results + list(torch.autograd.grad(loss, wanted, allow_unused=True))
        return results

    def difference(self, eager, lazy):
        """What is not the same, or None."""
        torch = self.torch
        if len(eager) != len(lazy):
            return f"{len(eager)} and {len(lazy)} results"
        for i, (a, b) in enumerate(zip(eager, lazy)):
            if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
                same = type(a) is type(b) and (a == b or a != a or (isinstance(a, float) and abs(a - b) <= 1e-4 * abs(a)))
                if not same:
                    return f"result {i}: {a!r} and {b!r}"
                continue
            for what in ("dtype", "layout", "device", "requires_grad"):
                if getattr(a, what) != getattr(b, what):
                    return f"result {i}: {what} {getattr(a, what)} and {getattr(b, what)}"
            if a.layout != torch.strided or a.is_nested or a.is_quantized:
                continue
            if a.shape != b.shape or (a.numel() > 0 and a.stride() != b.stride()):
                return f"result {i}: sizes {list(a.shape)} and {list(b.shape)}, strides {a.stride()} and {b.stride()}"
            problem = self.value_difference(a, b)
            if problem:
                return f"result {i}: {problem}"
        return None

    def value_difference(self, a, b):
        torch = self.torch
        a, b = (t.detach().resolve_conj().resolve_neg().cpu() for t in (a, b))
        relative, absolute = TOLERANCES.get(str(a.dtype).split(".")[-1], (0, 0))
        close = torch.isclose(a, b, rtol=relative, atol=absolute, equal_nan=True) if a.is_floating_point() or a.is_complex() else a == b
        if bool(close.all()):
            return None
        worst = int((~close).flatten().nonzero()[0])
        return f"{int((~close).sum())} of {a.numel()} values, first {a.flatten()[worst].item()} and {b.flatten()[worst].item()}"

    def attempt(self, function, sample, grad, lazy=False):
        """(results, None) or (None, the exception)."""
        try:
            if lazy:
                self.lazuli.enable()
            results = self.call(function, sample, grad)
            if lazy:
                self.lazuli.sync()
            return results, None
        except Exception as error:  # Any: eager's is what Lazuli's is compared with.
            return None, error
        finally:
            if lazy:
                self.lazuli.disable()

    def check(self, name, dtype, index, function, sample, grad):
        eager, error = self.attempt(function, sample, grad)
        again, _ = self.attempt(function, sample, grad)
        if eager is not None and (again is None or self.difference(eager, again)):
            self.counts["unstable"] += 1
            return
        for run in range(RUNS):
            self.counts["runs"] += 1
            lazy, lazy_error = self.attempt(function, sample, grad, lazy=True)
            if error is None and lazy_error is None:
                problem = self.difference(eager, lazy)
            else:
                words = [str(e).split("\n", maxsplit=1)[0][:100] for e in (error, lazy_error)]
                same = type(error) is type(lazy_error) and words[0] == words[1]
                problem = None if same else f"error {words[0]!r} and {words[1]!r}"
            if problem:
                self.counts["different"] += 1
                self.note(operator=name, dtype=dtype, sample=index, run=run, problem=problem)
                return

    def functions(self, op):
        """The callable that stands for the operator in this variant, and whether gradients are asked for; None where there is none."""
        torch, variant = self.torch, self.args.variant

        def inplace(x, *args, **kwargs):
            target = x.clone() if x.dtype == torch.bool else x * 1
            return op.inplace_variant(target, *args, **kwargs), target

        def into_out(x, *args, **kwargs):
            with torch.no_grad():
                results = op.op(x, *args, **kwargs)
                out = self.pytree.tree_map(torch.empty_like, results)
                op.op(x, *args, out=out, **kwargs)
                return out

        def double_backward(x, *args, **kwargs):
            results = self.tensors(op.op(x, *args, **kwargs))
            operands = [t for t in self.tensors([x, args, kwargs]) if t.requires_grad]
            outputs = [t for t in results if t.requires_grad]
            if not outputs or not operands:
                return results
            first = torch.autograd.grad(sum((t * t).sum() for t in outputs), operands, create_graph=True, allow_unused=True)
            further = [t for t in first if t is not None and t.requires_grad]
            second = torch.autograd.grad(sum((t * t).sum() for t in further), operands, allow_unused=True) if further else []
            return results + list(first) + list(second)

        table = {"function": (op.op, True), "noncontiguous": (op.op, True), "errors": (op.op, False),
                 "method": (op.method_variant, True), "inplace": (op.inplace_variant and inplace, True),
                 "out": (into_out if op.supports_out else None, False),
                 "double_backward": (double_backward if op.supports_gradgrad else None, False)}
        function, grad = table[variant]
        return None if function is None else (function, grad)

    def samples(self, op, dtype):
        torch = self.torch
        torch.manual_seed(3)
        if self.args.variant == "errors":
            return [error.sample_input for error in op.error_inputs(self.args.device)]
        with_grad = op.supports_autograd and dtype.is_floating_point
        samples = list(op.sample_inputs(self.args.device, dtype, requires_grad=with_grad))
        if len(samples) > self.args.samples:
            samples = [samples[i * len(samples) // self.args.samples] for i in range(self.args.samples)]
        return [s.noncontiguous() for s in samples] if self.args.variant == "noncontiguous" else samples

    def run(self):
        from torch.testing._internal.common_methods_invocations import op_db
        for position, op in enumerate(op_db):
            name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
            found = self.functions(op)
            skipped = op.name in WITHOUT_CONTENT or (self.args.only and op.name != self.args.only)
            elsewhere = position % self.args.shard[1] != self.args.shard[0]
            if position < self.args.start or elsewhere or skipped or found is None:
                continue
            for dtype in (getattr(self.torch, text) for text in self.args.dtypes.split(",")):
                if not op.supports_dtype(dtype, self.args.device):
                    continue
                try:
                    samples = self.samples(op, dtype)
                except Exception:  # Some make none for some devices and dtypes.
                    self.counts["without samples"] += 1
                    continue
                for index, sample in enumerate(samples):
                    self.note(position=position, operator=name, dtype=str(dtype), sample=index)
                    grad = found[1] and op.supports_autograd and dtype.is_floating_point
                    self.check(name, str(dtype), index, found[0], sample, grad)
        self.note(counts=dict(self.counts), stats=json.loads(self.lazuli.stats()))
        self.events.close()
        os._exit(0)  # Without the end of a process that may be holding broken samples.


def main():
    args = parse_args()
    if args.worker:
        Checker(args).run()
    # Samples of one operator are many traces at one place.
    limits = dict(LAZULI_RECOMPILE_LIMIT="1000000", LAZULI_ACCUMULATED_RECOMPILE_LIMIT="1000000")
    env = {**limits, "LAZULI_ASYNC": "0", "LAZULI_DISK_CACHE": "0", **os.environ}
    deadline, start, failed = time.monotonic() + args.seconds, 0, 0
    while True:
        with tempfile.NamedTemporaryFile(mode="r", suffix=".jsonl") as events:
            command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--worker", events.name, "--start", str(start)]
            worker = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                _, errors = worker.communicate(timeout=max(1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                _, errors = worker.communicate()
            lines = [json.loads(line) for line in events if line.endswith("\n")]
        for line in lines:
            if "problem" in line:
                failed += 1
                print(f"{line['operator']} {line['dtype']} sample {line['sample']}, run {line['run']}: {line['problem']}")
        last = lines[-1] if lines else {}
        if "counts" in last:
            print(f"{args.variant} on {args.device}, {args.dtypes}: {last['counts']}")
            return 1 if failed else 0
        if time.monotonic() >= deadline:
            print(f"out of time at {last.get('operator')} {last.get('dtype')} sample {last.get('sample')}")
            return 1
        if "position" not in last and "problem" not in last:
            print(f"operator_database.py: no operator could be checked:\n{errors[-2000:]}", file=sys.stderr)
            return 2
        at = [line for line in lines if "position" in line][-1]
        failed += 1
        print(f"{at['operator']} {at['dtype']} sample {at['sample']}: the process ended with status {worker.returncode}")
        start = at["position"] + 1


if __name__ == "__main__":
    sys.exit(main())
