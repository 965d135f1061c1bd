"""Run benchmarks of this runner and of Beam's FnApiRunner, and print ratios.

Every runner has a separate process. This runner runs the pipeline four times in
one session: the first time is the cold figure, the best of the others the warm one.
The peer, Beam's FnApiRunner, runs once in one process and once with two workers;
the better figure counts. Machines are shared and noisy, so that only ratios of
figures of the same run are meaningful.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.cases import CASES

PEERS = {
    "peer, 1 process": ["--direct_num_workers=1"],
    "peer, 2 processes": ["--direct_num_workers=2", "--direct_running_mode=multi_processing"],
}
OURS = "ours"


def measure(case: str, size: int, runner: str, runs: int, folder: Path) -> dict[str, Any]:
    """Run one case on one runner in a separate process; return its times and peak memory."""
    command = [sys.executable, "-m", "benchmarks", "--child", runner, case]
    command += ["--size", str(size), "--runs", str(runs), "--folder", str(folder)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peaks = {"python": 0, "java": 0}
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(child.pid, peaks, ended))
    watcher.start()
    output, _ = child.communicate()
    ended.set()
    watcher.join()
    if child.returncode != 0:
        raise SystemExit(f"{case} on {runner} ended with {child.returncode}")
    return {"seconds": json.loads(output.splitlines()[-1]), "peak_mb": peaks}


def _watch(pid: int, peaks: dict[str, int], ended: threading.Event) -> None:
    """Record the memory of the largest process of each kind, several times a second."""
    while not ended.wait(0.2):
        try:
            family = psutil.Process(pid).children(recursive=True)
        except psutil.Error:
            return
        for process in [psutil.Process(pid), *family]:
            try:
                kind = "java" if process.name() == "java" else "python"
                peaks[kind] = max(peaks[kind], process.memory_info().rss >> 20)
            except psutil.Error:
                continue


def run_child(runner_name: str, case: str, size: int, runs: int, folder: Path) -> None:
    """Run a case ``runs`` times and print the seconds of each as JSON."""
    seconds = [_timed(runner_name, case, size, folder) for _ in range(runs)]
    print(json.dumps(seconds))


def _timed(runner_name: str, case: str, size: int, folder: Path) -> float:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    started = time.monotonic()
    if runner_name == OURS:
        runner, flags = _our_runner(), []
    else:
        from apache_beam.runners.portability.fn_api_runner import FnApiRunner

        runner, flags = FnApiRunner(), PEERS[runner_name]
    with beam.Pipeline(runner=runner, options=PipelineOptions(flags)) as pipeline:
        CASES[case].build(pipeline, size, folder)
    return round(time.monotonic() - started, 2)


def run_sizes(case: str, sizes: list[int], runs: int, folder: Path) -> None:
    """Run a case in several sizes in one session that the largest one has warmed; print a table.

    Small sizes come last: the JVM compiles for about a minute, and earlier runs are slower. The
    time of the smallest size is taken as the fixed cost of a run. It is shown separately, and
    subtracted from the other times.
    """
    falling = sorted(sizes, reverse=True)
    _timed(OURS, case, falling[0], folder)
    taken: dict[int, list[float]] = {size: [] for size in falling}
    for _ in range(runs):  # in turns: the machine's own speed drifts
        for size in falling:
            taken[size].append(_timed(OURS, case, size, folder))
    best = {size: min(seconds) for size, seconds in taken.items()}
    own_size, *others = reversed(falling)
    own = best[own_size]
    print(f"\n{case} by size, warm, best of {runs}: a run of {own_size:,} takes {own:.2f} s")
    for size in others:
        whole, net = best[size] / size * 1e6, (best[size] - own) / (size - own_size) * 1e6
        print(f"  {size:12,} {best[size]:7.2f} s   {whole:5.2f} us each, {net:5.2f} without that")


_session: Any = None


def _our_runner() -> Any:
    """Return a runner on the shared session, which the first run opens, as part of its time."""
    global _session
    from beam_spark_runner import SparkPortableRunner
    from beam_spark_runner.spark.session.launch import start_classic

    if _session is None:
        _session = start_classic("local[2]", "benchmarks", {"spark.ui.enabled": "false"})
    return SparkPortableRunner(spark=_session)


def main() -> None:
    """Run the benchmarks of the command line, and print their figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all if none is named")
    parser.add_argument("--size", type=int, help="instead of each case's own")
    parser.add_argument(
        "--sizes", type=int, nargs="+", help="compare ours with itself in these, in one session"
    )
    parser.add_argument("--runs", type=int, default=4, help="of ours; the first one is cold")
    parser.add_argument("--no-peer", action="store_true", help="measure ours alone")
    parser.add_argument("--folder", type=Path, help="for input and output")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = set(arguments.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if arguments.child:
        (case,) = arguments.cases
        run_child(arguments.child, case, arguments.size, arguments.runs, arguments.folder)
        return
    with tempfile.TemporaryDirectory(prefix="beam-benchmarks-") as scratch:
        for case in arguments.cases or CASES:
            if arguments.sizes:
                folder = arguments.folder or Path(scratch)
                run_sizes(case, arguments.sizes, arguments.runs, folder)
                continue
            report(case, arguments, arguments.folder or Path(scratch))


def report(case: str, arguments: argparse.Namespace, folder: Path) -> None:
    """Measure one case on all runners and print its figures."""
    size = arguments.size or CASES[case].size
    ours = measure(case, size, OURS, arguments.runs, folder)
    cold, *warm = ours["seconds"]
    best = min(warm or [cold])
    print(f"\n{case}: {size:,} {CASES[case].unit}")
    print(f"  ours               warm {best:7.2f} s   cold {cold:7.2f} s   {_memory(ours)}")
    if arguments.no_peer:
        return
    names = list(PEERS)[:1] if CASES[case].peer_in_one_process else PEERS
    peers = {name: measure(case, size, name, 1, folder) for name in names}
    for name, peer in peers.items():
        print(f"  {name:18} once {peer['seconds'][0]:7.2f} s   {'':13}    {_memory(peer)}")
    ratio = best / min(peer["seconds"][0] for peer in peers.values())
    goal = CASES[case].goal
    wanted = "" if goal is None else f" (goal: at most {goal:.2f})"
    print(f"  ratio              {ratio:.2f} of the better peer{wanted}", flush=True)


def _memory(measured: dict[str, Any]) -> str:
    peaks = measured["peak_mb"]
    return f"largest Python process {peaks['python']} MB, JVM {peaks['java']} MB"


if __name__ == "__main__":
    main()
