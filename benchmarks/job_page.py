"""What the job page costs: a pipeline in process, without it, with it, and with 100 viewers.

The kinds take turns, so that other work of the machine hits all of them. CPU time counts what the
program uses, with the page's own threads; viewers are another process.

    python -m benchmarks.job_page [ELEMENTS [ROUNDS]]
"""

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

_KINDS = ("off", "page", "100 viewers")
_VIEWERS = 100
_EVERY_S = 2.0


def main(elements: int = 3_000_000, rounds: int = 5) -> None:
    """Run each kind so often, and print ratios."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in _KINDS}
    for _ in range(rounds):
        for kind in _KINDS:
            found[kind].append(_run(kind, elements))
    print(f"load average at the end: {os.getloadavg()[0]:.1f}")
    base = found["off"]
    for kind, runs in found.items():
        cpu, wall = (
            [run[name] / off[name] for run, off in zip(runs, base, strict=True)]
            for name in ("cpu_s", "wall_s")
        )
        memory = [run["mb"] - off["mb"] for run, off in zip(runs, base, strict=True)]
        page = statistics.median(run["page_s"] / run["cpu_s"] for run in runs)
        print(
            f"{kind:12} {statistics.median(run['wall_s'] for run in runs):7.2f} s"
            f"  CPU {statistics.median(run['cpu_s'] for run in runs):7.2f} s"
            f"  time x{statistics.median(wall):.3f} ({min(wall):.3f} to {max(wall):.3f})"
            f"  CPU x{statistics.median(cpu):.3f} ({min(cpu):.3f} to {max(cpu):.3f})"
            f"  threads of the page {page:.2%} of it"
            f"  memory {statistics.median(memory):+.0f} MB"
        )


def _run(kind: str, elements: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.job_page", "child", kind, str(elements)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    viewers = None
    if kind == _KINDS[2]:
        url = child.stdout.readline().strip()
        viewers = subprocess.Popen([sys.executable, "-m", "benchmarks.job_page", "viewers", url])
    *_, last = child.stdout.read().strip().splitlines()
    if viewers is not None:
        viewers.kill()
        viewers.wait()
    assert child.wait() == 0
    measured: dict[str, float] = json.loads(last)
    return measured


def _child(kind: str, elements: int) -> None:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    from beam_spark_runner import SparkPortableRunner

    flags = ["--spark_master_url=in-process", *(["--job_page_port=0"] if kind != "off" else [])]
    pipeline = beam.Pipeline(runner=SparkPortableRunner(), options=PipelineOptions(flags))
    numbers: Any = (
        pipeline
        | beam.Create(range(0, elements, 10_000))
        | beam.Reshuffle()
        | beam.FlatMap(lambda first: range(first, first + 10_000))
    )
    for step in range(6):
        numbers = numbers | f"Step {step}" >> beam.Map(lambda number: number + 1)
    _ = numbers | beam.Map(lambda number: (number % 1_000, 1)) | beam.CombinePerKey(sum)
    result = pipeline.run()
    # The page is imported and its port is open: what it costs to start is not measured here.
    began_s, cpu_s = time.monotonic(), time.process_time()
    if kind == _KINDS[2]:
        print(result.page_url, flush=True)
    result.wait_until_finish()
    measured = {
        "page_s": sum(map(_cpu_s, threading.enumerate())) if kind != "off" else 0.0,
        "wall_s": time.monotonic() - began_s,
        "cpu_s": time.process_time() - cpu_s,
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(measured), flush=True)


def _cpu_s(thread: threading.Thread) -> float:
    """Return the CPU time of a thread of the page; of other threads, 0."""
    if not thread.name.startswith(("beam-page", "AnyIO")):
        return 0.0
    fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _watch(url: str) -> None:
    """Load a page again and again, as often as it says, as many browsers do."""

    def look() -> None:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        address = url
        while True:
            try:
                with opener.open(address, timeout=30) as answer:
                    text = answer.read().decode()
            except OSError:
                return  # the program has ended
            address = url.partition("?")[0]
            every = re.search(r'data-every="(\d+)"', text)
            time.sleep(float(every[1]) if every else _EVERY_S)

    threads = [threading.Thread(target=look) for _ in range(_VIEWERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        _child(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["viewers"]:
        _watch(sys.argv[2])
    else:
        main(*map(int, sys.argv[1:]))
