#!/usr/bin/env python3
"""What Python programs do with tensors, eagerly and under the mode: values, dtypes, strides and shared memory must be eager's.

usage: python_test.py LIBLAZULI [--case NAME]

Needs a Python with torch 2.11 and numpy. Runs every case once for each backend, three times under the mode, in a process of its own; the
third time everything must come from the cache. Then runs a script with the library preloaded. LAZULI_BACKEND chooses one backend.
"""
import argparse
import copy
import io
import json
import os
import pickle
import subprocess
import sys

import numpy
import torch
import torch.nn.functional as F
import torch.utils.dlpack
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

CASES = {}
ROUNDS = 3
# What is counted must not depend on when a compiler is done, nor on earlier runs.
DEFAULTS = {"LAZULI_ASYNC": "0", "LAZULI_DISK_CACHE": "0"}
# The options of some cases.
OPTIONS = {
    "every_optimizer": {"LAZULI_RECOMPILE_LIMIT": "64"},  # They all begin at one place.
    "operator_in_python": {"LAZULI_HEAD_START": "1", "LAZULI_LAUNCH_THREAD": "1", "LAZULI_STEP_ASIDE": "0"},
}
# When a batch arrives, and the last one is freed, depends on other processes: traces may differ in what is still alive.
TIMED = {"data_loader_fork", "data_loader_spawn"}


def case(function):
    CASES[function.__name__] = function
    return function


def model():
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 4))


@case
def adamw_foreach():
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, foreach=True, amsgrad=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(torch.randn(6, 8)), torch.randint(4, (6,)))
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
    return losses + list(net.parameters())


@case
def every_optimizer():
    results = []
    for make in (lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True), lambda p: torch.optim.Adam(p, 0.01, foreach=False),
                 lambda p: torch.optim.RMSprop(p, 0.01, centered=True), lambda p: torch.optim.Adagrad(p, 0.01),
                 lambda p: torch.optim.Adam(p, 0.01, fused=True)):
        net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1))
        optimizer = make(net.parameters())
        for _ in range(4):
            optimizer.zero_grad()
            net(torch.randn(5, 6)).pow(2).mean().backward()
            optimizer.step()
        results += list(net.parameters())
    return results


@case
def numpy_shares_memory():
    array = numpy.arange(6, dtype=numpy.float32)
    tensor = torch.from_numpy(array)
    before = tensor * 2
    array[0] = 100
    after = tensor * 2
    tensor.add_(1)
    seen = float(array[5])
    pending = torch.ones(4) * 3
    exported = pending.numpy()
    pending.mul_(2)
    again = pending.numpy()
    again[1] = -1
    kept = torch.from_numpy(exported) + 1
    return [before, after, tensor, torch.tensor(seen), kept, pending, torch.as_tensor(numpy.asarray(pending + 1))]


class Rows(Dataset):
    def __init__(self):
        self.rows = torch.arange(24, dtype=torch.float32).view(8, 3) * 0.5

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index] * 2 + 1, index


def load(context):
    total = torch.zeros(3)
    batches = []
    for rows, index in DataLoader(Rows(), batch_size=4, num_workers=2, multiprocessing_context=context):
        total += (rows * index.unsqueeze(1)).sum(0)
        batches.append(rows)
    return batches + [total]


@case
def data_loader_fork():
    return load("fork")


@case
def data_loader_spawn():
    return load("spawn")


@case
def dlpack():
    x = torch.arange(6, dtype=torch.float32) * 2
    x.add_(1)
    y = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    y.mul_(3)
    z = torch.from_dlpack(x + 1)
    array = numpy.from_dlpack(x * 1)
    return [x, y, z * 2, torch.tensor(array.tolist())]


@case
def torchscript():
    @torch.jit.script
    def gates(x, w):
        y = torch.sigmoid(x @ w)
        if bool(y.mean() > 0.5):
            y = y * 2
        return torch.tanh(y) + x.sum()

    results = []
    for _ in range(4):
        w = torch.randn(3, 4, requires_grad=True)
        gates(torch.randn(2, 3), w).sum().backward()
        results.append(w.grad)
    traced = torch.jit.trace(nn.Linear(4, 2), torch.randn(1, 4))
    buffer = io.BytesIO()
    torch.jit.save(traced, buffer)
    buffer.seek(0)
    return results + [torch.jit.load(buffer)(torch.randn(3, 4)).detach()]


@case
def hooks():
    seen = []
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    net[0].register_forward_hook(lambda module, args, output: output * 2)
    net[2].register_full_backward_hook(lambda module, grads, outputs: seen.append(float(outputs[0].sum())))
    net[0].weight.register_hook(lambda grad: grad.clamp(-0.1, 0.1))

    def halve(parameter):
        parameter.grad.mul_(0.5)

    net[2].weight.register_post_accumulate_grad_hook(halve)
    for _ in range(2):
        net.zero_grad()
        net(torch.randn(3, 4, requires_grad=True)).sum().backward()
    return [parameter.grad for parameter in net.parameters()] + [torch.tensor(seen)]


@case
def checkpoints():
    block = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.2))
    results = []
    for reentrant in (False, True):
        x = torch.randn(3, 6, requires_grad=True)
        checkpoint(block, checkpoint(block, x, use_reentrant=reentrant), use_reentrant=reentrant).sum().backward()
        results.append(x.grad)
    return results + [parameter.grad for parameter in block.parameters()]


@case
def autocast():
    net = model()
    x = torch.randn(5, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = net(x)
    y.float().sum().backward()
    return [y.detach(), net[4].bias.grad]


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x.sin() * scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos() * ctx.scale, None


class Tripled(torch.autograd.Function):
    """One that torch.func takes."""

    @staticmethod
    def forward(x):
        return x.sin() * 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos() * 3


@case
def functions_and_transforms():
    x = torch.linspace(-1, 1, 5, requires_grad=True)
    first, = torch.autograd.grad(Scaled.apply(x, 3.0).sum(), x)
    hessian = torch.autograd.functional.hessian(lambda v: v.pow(3).sum(), torch.linspace(0, 1, 3))
    batched = torch.vmap(lambda row: row.softmax(0) * 2)(torch.randn(3, 4))
    jacobian = torch.func.jacrev(torch.tanh)(torch.linspace(0, 1, 3))
    _, tangent = torch.func.jvp(lambda v: v.exp().sum(), (torch.ones(3) * 2,), (torch.ones(3),))
    through = torch.func.grad(lambda v: Tripled.apply(v).sum())(torch.linspace(0, 1, 3))
    chosen = torch.ops.higher_order.cond(torch.tensor(True), lambda v: v.sin(), lambda v: v.cos(), (x.detach(),))
    return [first, hessian, batched, jacobian, tangent, through, chosen]


@case
def pickling():
    x = torch.arange(6, dtype=torch.float32) * 2
    copied = pickle.loads(pickle.dumps([x, x.view(2, 3)]))
    copied[0].add_(1)
    net = model()
    state = pickle.loads(pickle.dumps(net.state_dict()))
    buffer = io.BytesIO()
    torch.save({"x": x + 1, "state": state}, buffer)
    x.zero_()
    buffer.seek(0)
    loaded = torch.load(buffer)
    return [x, *copied, loaded["x"], *loaded["state"].values(), repr(x), str(copied[1])]


@case
def modules_and_views():
    lstm = nn.LSTM(4, 5, num_layers=2, batch_first=True)
    output, (hidden, _) = lstm(torch.randn(2, 3, 4))
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    attended = encoder(torch.randn(2, 5, 8))
    (output.sum() + attended.pow(2).sum()).backward()
    x = torch.zeros(4, 4)
    x[1:3, ::2] = 5
    x[x > 1] *= 2
    x.T[0] += torch.arange(4)
    return [output.detach(), hidden.detach(), attended.detach(), lstm.weight_ih_l0.grad, x, x.tolist(), x.sum().item()]


@case
def averages_of_copies():
    """A copy's storages were Python's for a moment: writes through views of it are recorded like others."""
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    average = copy.deepcopy(net)
    for _ in range(4):
        net(torch.randn(3, 4))
        for mean, now in zip(average.state_dict().values(), net.state_dict().values()):
            if mean.is_floating_point():
                mean.detach().lerp_(now, 0.1)
                mean[:1].add_(0.5)
    assert not {"aten::lerp_.Scalar", "aten::add_.Tensor"} & stats()["eager_fallbacks"].keys(), stats()["eager_fallbacks"]
    return list(average.state_dict().values())


@case
def compile_beside_it():
    @torch.compile(backend="aot_eager")
    def step(x, w):
        return torch.tanh(x @ w).sum()

    w = torch.randn(4, 4, requires_grad=True)
    x = torch.ones(2, 4) * 0.5
    loss = step(x, w)
    loss.backward()
    return [loss.detach(), w.grad, x + 1]


# Operators that have a row in codegen/ir/op.def, and come as they are called: whatever LibTorch's Python half registers for them, each is
# recorded as one, at first sight.
AS_ONE = {
    "constant_pad_nd": lambda x: torch.constant_pad_nd(x, (1, 2, 0, 1), 0.5),
    "crop": lambda x: F.pad(x, (-1, 2)),
    "rsub": lambda x: 1 - x,
    "norm": lambda x: torch.ops.aten.norm.Scalar(x, 2),
    "embedding": lambda x: F.embedding(torch.tensor([1, 0]), x),
    "index_add": lambda x: torch.index_add(x, 0, torch.tensor([1, 1]), x[:2]),
    "roll": lambda x: torch.roll(x, 1, 0),
    "stack": lambda x: torch.stack([x, x]),
    "softmax": lambda x: torch.softmax(x, 1),
    "gelu": lambda x: F.gelu(x),
}


@case
def recorded_as_one():
    results = []
    for name, function in AS_ONE.items():
        for rows in (5, 6):
            x = torch.arange(rows * 4.0).view(rows, 4) / 8
            under_mode = torch.ops.lazuli.is_enabled()
            if under_mode:
                torch.ops.lazuli.sync()
            before = stats()
            results.append(function(x))
            if under_mode:
                torch.ops.lazuli.sync()
            after = stats()
            gained = {key: after[key] - before[key] for key in ("ops_recorded", "observations")}
            if under_mode and gained != {"ops_recorded": 1, "observations": 0}:
                raise AssertionError(f"{name} of {rows} rows: {gained}")
    return results


# Steps that a thread of their own launches may wait for Python, whose lock the thread holds that waits for them.
@case
def operator_in_python():
    if not hasattr(torch.ops.lazuli_test, "thrice"):
        library = torch.library.Library("lazuli_test", "DEF")
        library.define("thrice(Tensor x) -> Tensor")
        library.impl("thrice", lambda x: x * 3, "CPU")
        CASES["operator_in_python"].library = library  # Which takes it along when it goes.
    results = []
    for _ in range(6):
        x = torch.arange(32.0)
        for _ in range(10):
            x = torch.relu(x) + 0.25
        x = torch.ops.lazuli_test.thrice(x)
        for _ in range(10):
            x = torch.relu(x) + 0.25
        results.append(x.sum().item())
    if torch.ops.lazuli.is_enabled() and stats()["head_starts"] == 0:
        raise AssertionError("nothing ran ahead")
    return results


def same(eager, lazy, exact):
    if isinstance(eager, torch.Tensor):
        if (eager.dtype, eager.shape, eager.stride(), eager.requires_grad) != (lazy.dtype, lazy.shape, lazy.stride(), lazy.requires_grad):
            return False
        if exact or not eager.is_floating_point():
            return torch.equal(eager, lazy)
        tolerance = {torch.bfloat16: 2e-2}.get(eager.dtype, 5e-5)
        return torch.allclose(eager, lazy, rtol=tolerance, atol=tolerance, equal_nan=True)
    return eager == lazy


def stats():
    return json.loads(torch.ops.lazuli.stats())


def run_case(name, library):
    torch.ops.load_library(library)
    exact = os.environ.get("LAZULI_BACKEND") == "aten"
    body = CASES[name]
    torch.manual_seed(5)
    eager = body()
    for run in range(ROUNDS):
        before = stats()
        torch.manual_seed(5)
        torch.ops.lazuli.enable()
        assert torch.ops.lazuli.is_enabled()
        lazy = body()
        torch.ops.lazuli.disable()
        after = stats()
        assert len(eager) == len(lazy), name
        for index, (want, got) in enumerate(zip(eager, lazy)):
            if not same(want, got, exact):
                sys.exit(f"{name}, run {run}, result {index}:\neager {want}\nlazy {got}")
    if " traces of " not in torch.ops.lazuli.explain():
        sys.exit(f"{name}: explain() says {torch.ops.lazuli.explain()!r}")
    gained = {key: after[key] - before[key] for key in after if isinstance(after[key], int)}
    problems = [key for key in ("compile_failures", "programs_compiled", "observations", "recompile_limit_hits") if gained[key] != 0]
    cached = gained["cache_hits"] > 0 if name in TIMED else gained["cache_hits"] == gained["traces"] and not problems
    if gained["ops_recorded"] == 0 or not cached:
        sys.exit(f"{name}: not all compiled and cached in the last run: {gained}")
    print(f"{name}: {gained['ops_recorded']} ops, {gained['traces']} traces, {gained['cache_hits']} from the cache")


PRELOADED = """
import torch, json
assert torch.ops.lazuli.is_enabled()
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(net.parameters(), 0.01)
for _ in range(6):
    optimizer.zero_grad()
    loss = net(torch.randn(5, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.6f}")
stats = json.loads(torch.ops.lazuli.stats())
assert stats["cache_hits"] >= 3 and stats["programs_compiled"] > 0, stats
"""


def run_preloaded(library):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LAZULI")}
    source = "\n".join(line for line in PRELOADED.splitlines() if "lazuli" not in line and "stats" not in line)
    eager = subprocess.run([sys.executable, "-c", source], env=clean, capture_output=True, text=True)
    preload = {**clean, **DEFAULTS, "LD_PRELOAD": library, "LAZULI": "1", "LD_LIBRARY_PATH": os.path.join(os.path.dirname(torch.__file__), "lib")}
    lazy = subprocess.run([sys.executable, "-c", PRELOADED], env=preload, capture_output=True, text=True)
    if eager.returncode or lazy.returncode or len(eager.stdout.split()) != 6:
        sys.exit(f"preloaded: {eager.stderr}{lazy.stdout}{lazy.stderr}")
    for want, got in zip(eager.stdout.split(), lazy.stdout.split()):
        if abs(float(want) - float(got)) > 2e-5:
            sys.exit(f"preloaded: {eager.stdout} {lazy.stdout}")
    print("preloaded: as eager")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--case", choices=CASES)
    options = parser.parse_args()
    library = os.path.abspath(options.library)
    if options.case and "LAZULI_BACKEND" in os.environ:
        run_case(options.case, library)
        return
    failed = []
    for backend in [os.environ["LAZULI_BACKEND"]] if "LAZULI_BACKEND" in os.environ else ["aten", "llvm"]:
        for name in [options.case] if options.case else CASES:
            command = [sys.executable, __file__, library, "--case", name]
            environment = {**DEFAULTS, **OPTIONS.get(name, {}), **os.environ, "LAZULI_BACKEND": backend}
            if subprocess.run(command, env=environment, timeout=600).returncode != 0:
                failed.append(f"{name} on {backend}")
    if not options.case:
        run_preloaded(library)
    if failed:
        sys.exit("failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
