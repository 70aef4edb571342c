"""Eager PyTorch, torch.compile and Lazuli side by side on the programs of workloads.py, and on those of cpp_workloads without torch.compile.

Names of the latter begin with "cpp:". All of the former are run by default, and with --cpp all of the latter too.

Each (workload, mode) runs in a process of its own; modes take turns within each of several rounds, so that a slow spell of the
machine meets all of them. The first round of torch.compile and of Lazuli starts with empty caches on disk, later ones find them filled.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODES = ["eager", "compile", "lazuli"]
TITLES = {"eager": "eager", "compile": "torch.compile", "compile-dynamic": "torch.compile dyn", "compile-autotune": "torch.compile max",
          "lazuli": "lazuli", "lazuli-autotune": "lazuli max"}
# What runs in a worker's mode of another name, with these variables.
VARIANTS = {"lazuli-autotune": ("lazuli", {"LAZULI_MODE": "max-autotune"})}
CPP = "cpp:"  # What names of C++ workloads begin with.
TOLERANCE = 1e-3  # Relative, of the mean magnitude of a workload's first result: a mode that is off by more has not done the work.


def modes_of(workload, args):
    """torch.compile is for Python."""
    return [mode for mode in args.modes if not workload.startswith(CPP) or not mode.startswith("compile")]


def known_workloads(args):
    """Names of all workloads."""
    from workloads import WORKLOADS
    names = list(WORKLOADS)
    if args.cpp:
        listed = subprocess.run([args.cpp, "--list"], capture_output=True, text=True, check=True).stdout
        names += [CPP + line.split("\t")[0] for line in listed.splitlines()]
    return names


def run_worker(workload, mode, args, cache_dir):
    """The worker's JSON as a dict, or a dict with `error`."""
    env = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache_dir, LAZULI_CACHE_DIR=os.path.join(cache_dir, "lazuli"))
    mode, variables = VARIANTS.get(mode, (mode, {}))
    env.update(variables)
    if workload.startswith(CPP):
        command = [args.cpp, "--workload", workload[len(CPP):], "--mode", mode]
    else:
        command = [sys.executable, os.path.join(HERE, "worker.py"), workload, mode, "--lib", args.lib]
    command += ["--threads", str(args.threads), "--seconds", str(args.seconds)]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=args.timeout)
    except subprocess.TimeoutExpired:
        return dict(workload=workload, mode=mode, error=f"no result within {args.timeout} s")
    if done.returncode != 0:
        return dict(workload=workload, mode=mode, error=f"exit status {done.returncode}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def summarize(runs):
    """Medians and spread over the timed steps of all rounds of one (workload, mode)."""
    good = [run for run in runs if "error" not in run]
    if len(good) < len(runs) or not good:
        return dict(error=next((run["error"] for run in runs if "error" in run), "not run"))
    times = sorted(t for run in good for t in run["times_ms"])
    quartiles = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
    summary = dict(median_ms=statistics.median(times), min_ms=times[0], p25_ms=quartiles[0], p75_ms=quartiles[2], steps=len(times),
                   round_medians_ms=[run["median_ms"] for run in good], first_s=good[0]["first_s"],
                   first_later_s=statistics.median(run["first_s"] for run in good[1:]) if len(good) > 1 else None,
                   peak_rss_mb=max(run["peak_rss_mb"] for run in good), check=good[0]["check"])
    for key in ("stats", "compiles_after_warm_up", "load_s"):
        if key in good[-1]:
            summary[key] = good[-1][key]
    return summary


def verify(by_mode):
    """Marks a mode as failed when its first result is not eager's."""
    expected = by_mode.get("eager", {}).get("check")
    for mode, summary in by_mode.items():
        if expected is None or "check" not in summary:
            continue
        off = abs(summary["check"] - expected) / max(abs(expected), 1e-30)
        if not off <= TOLERANCE:
            by_mode[mode] = dict(error=f"wrong result: off from eager by {off:.2e}", **summary)


def ratio(by_mode, base):
    """How many times faster Lazuli's median is than that of `base`; None when either is missing."""
    try:
        if "error" in by_mode[base] or "error" in by_mode["lazuli"]:
            return None
        return by_mode[base]["median_ms"] / by_mode["lazuli"]["median_ms"]
    except KeyError:
        return None


def print_table(results, modes):
    def cell(summary):
        if summary is None:
            return "-"
        if "error" in summary:
            return "FAILED"
        return "{median_ms:.3f} ({p25_ms:.3f}-{p75_ms:.3f})".format(**summary)

    def times(value):
        return f"{value:.2f}x" if value else "-"

    def seconds(summary, key="first_s"):
        return f"{summary[key]:.2f}" if summary and summary.get(key) is not None and "error" not in summary else "-"

    print("\nmedian step, ms (quartiles); ratios: how many times as fast Lazuli is")
    print(f"{'workload':22}" + "".join(f"{TITLES[m]:>27}" for m in modes) + f"{'vs eager':>10}{'vs torch.compile':>18}")
    for workload, by_mode in results.items():
        print(f"{workload:22}" + "".join(f"{cell(by_mode.get(m)):>27}" for m in modes) +
              f"{times(ratio(by_mode, 'eager')):>10}{times(ratio(by_mode, 'compile')):>18}")
    print("\nfirst step in a new process, s (compiling included), and peak memory, MB")
    print(f"{'workload':22}{'eager':>9}{'torch.compile cold':>20}{'warm disk cache':>17}{'lazuli cold':>13}{'warm':>9}   "
          + "".join(f"{TITLES[m]:>15}" for m in modes))
    for workload, by_mode in results.items():
        rss = "".join(f"{by_mode[m]['peak_rss_mb']:>15.0f}" if "peak_rss_mb" in by_mode.get(m, {}) else f"{'-':>15}" for m in modes)
        print(f"{workload:22}{seconds(by_mode.get('eager')):>9}{seconds(by_mode.get('compile')):>20}"
              f"{seconds(by_mode.get('compile'), 'first_later_s'):>17}{seconds(by_mode.get('lazuli')):>13}"
              f"{seconds(by_mode.get('lazuli'), 'first_later_s'):>9}   {rss}")
    for workload, by_mode in results.items():
        for mode, summary in by_mode.items():
            if "error" in summary:
                print(f"\n{workload} under {TITLES[mode]} failed: {summary['error']}")


def parse_arguments():
    sys.path.insert(0, HERE)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", default="", help="path of liblazuli.so; needed for mode lazuli")
    parser.add_argument("--out", default="", help="write results as JSON to this file")
    parser.add_argument("--cpp", default="", help="path of the program cpp_workloads; needed for C++ workloads")
    parser.add_argument("--workloads", default="", help="comma-separated; all by default, \"cpp\" for all in C++")
    parser.add_argument("--modes", default=",".join(MODES), help="comma-separated: " + ", ".join(TITLES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="time each process's steps for at least this long")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0: PyTorch's default")
    parser.add_argument("--timeout", type=int, default=600, help="seconds a process may take")
    args = parser.parse_args()
    args.modes = args.modes.split(",")
    unknown = set(args.modes) - set(TITLES)
    if unknown:
        parser.error(f"unknown mode: {', '.join(sorted(unknown))}")
    if any(mode.startswith("lazuli") for mode in args.modes) and not os.path.isfile(args.lib):
        parser.error(f"no library at '{args.lib}': build it and give its path with --lib, or leave lazuli out of --modes")
    if args.cpp and not os.path.isfile(args.cpp):
        parser.error(f"no program at '{args.cpp}': build the target cpp_workloads and give its path with --cpp")
    if not args.cpp and any(name.startswith("cpp") for name in args.workloads.split(",")):
        parser.error("C++ workloads need --cpp, the path of the program cpp_workloads")
    return args


def main():
    args = parse_arguments()
    known = known_workloads(args)
    names = args.workloads.split(",") if args.workloads else known
    if names == ["cpp"]:
        names = [name for name in known if name.startswith(CPP)]
    for name in names:
        if name not in known:
            sys.exit(f"compare.py: unknown workload '{name}'; known: {', '.join(known)}")
    runs = {(name, mode): [] for name in names for mode in modes_of(name, args)}
    caches = tempfile.mkdtemp(prefix="lazuli-bench-")
    try:
        for turn in range(args.rounds):
            for name in names:
                for mode in modes_of(name, args):
                    result = run_worker(name, mode, args, os.path.join(caches, name.replace(":", "-")))
                    runs[name, mode].append(result)
                    shown = result.get("error", "").splitlines()[-1:] or [f"{result.get('median_ms', 0):9.3f} ms"]
                    print(f"round {turn + 1}/{args.rounds}  {name:22} {TITLES[mode]:17} {shown[0]}", flush=True)
    finally:
        shutil.rmtree(caches, ignore_errors=True)
    results = {}
    for name in names:
        results[name] = {mode: summarize(runs[name, mode]) for mode in modes_of(name, args)}
        verify(results[name])
        results[name]["ratios"] = {base: ratio(results[name], base) for base in ("eager", "compile")}
    ratios = {name: results[name].pop("ratios") for name in names}
    print_table(results, args.modes)
    if args.out:
        os.makedirs(os.path.dirname(os.path.abspath(args.out)), exist_ok=True)
        with open(args.out, "w") as file:
            json.dump(dict(cpus=os.cpu_count(), rounds=args.rounds, results=results, lazuli_times_as_fast_as=ratios), file, indent=1)
    return 1 if any("error" in by_mode.get("lazuli", {}) for by_mode in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
