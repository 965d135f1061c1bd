"""Memory follows batches, not elements: gigabytes go through workers of some hundred megabytes."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

PROGRAM = Path(__file__).parent / "programs" / "large_values.py"
ON_A_CLUSTER = PROGRAM.with_name("large_values_on_a_cluster.py")
MB, GB = 1 << 20, 1 << 30
WORKER_LIMIT_MB = 600
LONG_VALUES = os.environ.get("LONG_VALUES", "400")
"""How many values of 5 MB: 400 are as much as both executors' heaps."""

PYTHON = os.environ.get("PYTHON_OF_PROGRAMS", sys.executable)
"""What runs the programs: `make memory-3.5` has another one, with another Spark."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "results"),
    [
        ("one_element_to_2_gb", {str(2 * GB)}),
        ("group_of_2_gb", {str((3, 2 * 1024 * 1024, 2 * GB))}),
        (
            "sessions_of_1_gb",
            {str((3, count, count * 1024)) for count in (529_536, 5_248, 5_216)},
        ),
        ("bag_of_1_gb", {str((1024 * 1024, GB))}),
        ("bag_of_megabytes", {str((1024, GB))}),
        ("key_of_50_mb", {str((50 * MB, 3, 3))}),
        ("elements_of_1_mb", {str(2000 * MB)}),
        ("grouped_elements_of_1_mb", {str((1, 1000, 1000 * MB))}),
        ("multimap_of_2_gb", {str(((64, True), 4096)), str(((0, True), 1024))}),
        ("side_input_of_2_gb_iterated", {str(2 * GB)}),
    ],
)
def test_large_values_need_little_memory(case: str, results: set[str], tmp_path: Path) -> None:
    peak_mb = _peak_mb(PYTHON, PROGRAM, case, str(tmp_path / "out"))
    lines = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert set(lines) == results
    print(f"{case}: {peak_mb} MB")
    assert 0 < peak_mb <= WORKER_LIMIT_MB


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "case", ["pointwise", "redistributed", "grouped", "side_input", "multimap"]
)
def test_long_values_go_through_shared_storage(case: str, tmp_path: Path) -> None:
    """Values of 5 MB pass executors whose heap is 1 GB; the program checks each value."""
    peak_mb = _peak_mb(PYTHON, ON_A_CLUSTER, case, LONG_VALUES, "5", str(tmp_path))
    print(f"{case}: {peak_mb} MB")
    assert 0 < peak_mb <= WORKER_LIMIT_MB
    assert list(tmp_path.iterdir()) == []


def _peak_mb(*command: str | Path) -> int:
    """Run a program that has to succeed; return the memory of its largest Python process."""
    root = PROGRAM.parents[2]
    program = subprocess.Popen(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})
    peak_mb, ended = [0], threading.Event()
    watcher = threading.Thread(target=_watch, args=(program.pid, peak_mb, ended))
    watcher.start()
    program.wait()
    ended.set()
    watcher.join()
    assert program.returncode == 0
    return peak_mb[0]


def _watch(pid: int, peak_mb: list[int], ended: threading.Event) -> None:
    """Note the memory of the largest Python process, driver or worker, ten times a second."""
    while not ended.wait(0.1):
        try:
            driver = psutil.Process(pid)
            family = [driver, *driver.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in family:
            try:
                # Not the JVM, whose heap has a separate bound, nor what it is about to execute:
                # until then a forked process has the JVM's memory, and the name of a thread.
                if Path(process.exe()).name.startswith("python"):
                    peak_mb[0] = max(peak_mb[0], process.memory_info().rss >> 20)
            except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
                continue
