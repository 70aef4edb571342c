"""Times one workload under one mode in this process, and prints one line of JSON. Started by compare.py."""
import argparse
import gc
import json
import resource
import statistics
import sys
import time


# Arguments of torch.compile, by mode.
COMPILERS = {"compile": {}, "compile-dynamic": {"dynamic": True}, "compile-autotune": {"mode": "max-autotune-no-cudagraphs"}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload")
    parser.add_argument("mode", choices=["eager", *COMPILERS, "lazuli"])
    parser.add_argument("--lib", default="")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.0, help="time steps for at least this long")
    args = parser.parse_args()

    import torch
    from workloads import WORKLOADS
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    build, warm_up, fewest = WORKLOADS[args.workload]
    options = COMPILERS.get(args.mode)
    step = build(lambda f: f if options is None else torch.compile(f, **options))

    lazuli = args.mode == "lazuli"
    load_s = 0.0
    if lazuli:
        start = time.perf_counter()
        torch.ops.load_library(args.lib)
        load_s = time.perf_counter() - start

    def timed():
        """Runs a step to its end: what Lazuli still has pending is part of the step."""
        start = time.perf_counter()
        out = step()
        if lazuli:
            torch.ops.lazuli.sync()
        return time.perf_counter() - start, out

    start = time.perf_counter()
    if lazuli:
        torch.ops.lazuli.enable()
    _, out = timed()
    first_s = time.perf_counter() - start
    check = out.double().abs().mean().item()
    for _ in range(warm_up):
        timed()
    if lazuli:
        torch.ops.lazuli.wait_for_compiles()
    warm_stats = json.loads(torch.ops.lazuli.stats()) if lazuli else None
    gc.collect()
    gc.freeze()  # Python's collector would otherwise walk PyTorch's own objects at random steps.
    times = []
    begin = time.perf_counter()
    while len(times) < fewest or time.perf_counter() - begin < args.seconds:
        seconds, out = timed()
        times.append(seconds * 1e3)
        del out  # As in a training loop: the previous result is not kept through the next step.
    result = dict(workload=args.workload, mode=args.mode, threads=torch.get_num_threads(), load_s=load_s, first_s=first_s, check=check,
                  times_ms=times, median_ms=statistics.median(times), peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    if lazuli:
        result["stats"] = json.loads(torch.ops.lazuli.stats())
        result["compiles_after_warm_up"] = result["stats"]["programs_compiled"] - warm_stats["programs_compiled"]
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
