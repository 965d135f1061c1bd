"""Compare pipelines with RDD programs and with FnApiRunner: ``python -m benchmarks.by_hand``.

    python -m benchmarks.by_hand [CASE …] [--size N] [--rounds N] [--no-peer]

Each round runs each program in a separate process, in turns, so that none carries the objects of
another one. A process runs its case three times; the first run warms it up, and is not counted. The
figures are the best of all rounds: wall seconds, and the CPU seconds of the process with its JVM
and its Python workers. The word counts of all programs are compared line by line.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from benchmarks.__main__ import OURS, PEERS
from benchmarks.by_hand.programs import PROGRAMS
from benchmarks.cases import CASES

BY_HAND = "RDD by hand"
_MASTER = "local[2]"
_WARM_RUNS = 2


def _cpu_s() -> float:
    """Return the CPU seconds of this process, its descendants, and those of them that ended."""
    this = psutil.Process()
    total = 0.0
    for process in [this, *this.children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue
    return total


def _run(program: str, case: str, size: int, folder: Path) -> None:
    if program == BY_HAND:
        from pyspark.sql import SparkSession

        PROGRAMS[case](
            SparkSession.builder.master(_MASTER).getOrCreate().sparkContext, size, folder
        )
        return
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    if program == OURS:
        flags = ["--runner=SparkPortableRunner", f"--spark_master_url={_MASTER}", "--progress=off"]
    else:
        flags = ["--runner=FnApiRunner", *PEERS[program]]
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        CASES[case].build(pipeline, size, folder)


def _child(program: str, case: str, size: int, folder: Path, runs: int) -> None:
    """Run a case and print the wall and CPU seconds of each run as JSON."""
    figures = []
    for _ in range(runs):
        cpu_s, began_s = _cpu_s(), time.perf_counter()
        _run(program, case, size, folder)
        figures.append((time.perf_counter() - began_s, _cpu_s() - cpu_s))
    print(json.dumps(figures))


def _measured(program: str, case: str, size: int, folder: Path) -> tuple[float, float]:
    """Return the best wall and CPU seconds of a program in a separate process."""
    runs = 1 if program in PEERS else 1 + _WARM_RUNS
    command = [sys.executable, "-m", "benchmarks.by_hand", "--child", program, case]
    command += ["--size", str(size), "--folder", str(folder), "--runs", str(runs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    walls, cpus = zip(*(figures[1:] or figures), strict=True)
    return min(walls), min(cpus)


def _word_counts(folder: Path, program: str) -> "Counter[str]":
    """Remove the files that a program has written, and return their lines.

    Several programs write files of the same name, in different numbers.
    """
    names = "counts-by-hand/part-*" if program == BY_HAND else "counts-0*"
    lines = Counter[str]()
    for file in folder.glob(names):
        lines.update(file.read_text().splitlines())
        file.unlink()
    return lines


def _report(case: str, arguments: argparse.Namespace, folder: Path) -> None:
    size = arguments.size or CASES[case].size
    programs = [BY_HAND, OURS, *(() if arguments.no_peer else PEERS)]
    best: dict[str, tuple[float, float]] = {}
    results: dict[str, Counter[str]] = {}
    for _ in range(arguments.rounds):
        for program in programs:
            walls, cpus = _measured(program, case, size, folder)
            results[program] = _word_counts(folder, program)
            if results[program] != results[BY_HAND]:
                raise SystemExit(f"the word counts of {program} differ: the run is void")
            previous = best.get(program, (walls, cpus))
            best[program] = min(previous[0], walls), min(previous[1], cpus)
    print(f"\n{case}: {size:,} {CASES[case].unit}")
    wall_s, cpu_s = best[OURS]
    for program, (wall, cpu) in best.items():
        ratios = f"   ours / this {wall_s / wall:5.2f} wall {cpu_s / cpu:5.2f} CPU"
        shown = "" if program == OURS else ratios
        print(f"  {program:26} {wall:7.2f} s wall {cpu:7.2f} s CPU{shown}", flush=True)


def main() -> None:
    """Measure the cases of the command line, and print their figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.by_hand", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(PROGRAMS)}; all if none is named")
    parser.add_argument("--size", type=int, help="instead of each case's own")
    parser.add_argument("--rounds", type=int, default=1, help="of all programs")
    parser.add_argument("--no-peer", action="store_true", help="without FnApiRunner")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = set(arguments.cases) - set(PROGRAMS)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if arguments.child:
        (case,) = arguments.cases
        _child(arguments.child, case, arguments.size, arguments.folder, arguments.runs)
        return
    with tempfile.TemporaryDirectory(prefix="beam-benchmarks-") as scratch:
        for case in arguments.cases or PROGRAMS:
            _report(case, arguments, Path(scratch))


if __name__ == "__main__":
    main()
