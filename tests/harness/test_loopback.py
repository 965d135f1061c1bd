"""Harnesses in threads of the program, and what is left of them."""

import gc
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest

from beam_spark_runner.harness.beam.job_options import JobOptions
from beam_spark_runner.harness.beam.profiling import Profiling
from beam_spark_runner.job.run.loopback import LoopbackPool

WORKER = """
import os, signal, sys
from tests.harness.conftest import BARE, Collected, one_step, stage_on

stage = stage_on(sys.argv[1], one_step)
output = Collected()
bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, output), {})
bundle.push([b"a"], [BARE])
bundle.finish()
print(output.values, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.filterwarnings(  # Beam's threads die of the broken streams
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)
def test_a_harness_whose_spark_worker_was_killed_is_freed() -> None:
    """With its state cache and its DoFns, while the job continues."""
    pool = LoopbackPool(100 << 20, Profiling(JobOptions("{}")))
    root = Path(__file__).parents[2]
    worker = subprocess.run(
        [sys.executable, "-c", WORKER, pool.url], cwd=root, capture_output=True, text=True
    )
    assert worker.stdout == "[b'A']\n", worker.stderr
    (harness,) = pool._harnesses.values()
    freed = weakref.ref(harness)
    assert harness.wait(30)
    pool._harnesses.clear()  # as the next start does
    del harness
    deadline = time.monotonic() + 30  # gRPC ends its own threads a moment later
    while freed() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    assert freed() is None
    pool.stop()
