"""Pipelines that run in this process: what they leave as it is, and what they refuse."""

import contextlib
import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apache_beam as beam
import psutil
import pytest
from apache_beam.internal.cloudpickle import cloudpickle
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.testing.util import assert_that, equal_to
from pyspark import SparkContext

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import (
    BundleFailedError,
    OptionsError,
    PipelineRefusedError,
    TableError,
)
from beam_spark_runner.options.server_options import parse_server_options
from beam_spark_runner.transforms import ReadFromSpark, WriteToSpark

IN_PROCESS = "--spark_master_url=in-process"


def pipeline(*flags: str, runner: Any = None) -> beam.Pipeline:
    options = PipelineOptions([IN_PROCESS, "--progress=off", *flags])
    return beam.Pipeline(runner=runner or SparkPortableRunner(), options=options)


class Recorder(beam.DoFn):  # type: ignore[misc]
    """Says in this process what has happened to it."""

    happened: list[str] = []  # noqa: RUF012  (all instances share it on purpose)

    def setup(self) -> None:
        Recorder.happened.append("setup")

    def process(
        self, element: int, finalizer: Any = beam.DoFn.BundleFinalizerParam
    ) -> Iterator[int]:
        finalizer.register(lambda: Recorder.happened.append("finalized"))
        yield element

    def teardown(self) -> None:
        Recorder.happened.append("teardown")


def test_a_do_fn_lives_from_setup_to_teardown() -> None:
    Recorder.happened.clear()
    with pipeline() as p:
        _ = p | beam.Create([1, 2]) | beam.ParDo(Recorder())
    assert Recorder.happened[0] == "setup"
    assert Recorder.happened[-1] == "teardown"
    assert "finalized" in Recorder.happened


def what_a_worker_would_change() -> dict[str, Any]:
    return {
        "main": sys.modules["__main__"],
        "handlers": list(logging.getLogger().handlers),
        "level": logging.getLogger().level,
        "classes": cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID,
        "folder": os.getcwd(),
        "path": list(sys.path),
        "frozen": gc.get_freeze_count(),
        "thresholds": gc.get_threshold(),
        "environment": dict(os.environ),
    }


def grouped(p: beam.Pipeline) -> None:
    pairs = p | beam.Create([("a", 1), ("b", 2), ("a", 3)])
    assert_that(pairs | beam.CombinePerKey(sum), equal_to([("a", 4), ("b", 2)]))


def streamed(p: beam.Pipeline) -> None:
    stream = Stream().add_elements(["a", "b"]).advance_watermark_to_infinity()
    assert_that(p | stream, equal_to(["a", "b"]))


@pytest.mark.parametrize("build", [grouped, streamed])
def test_the_process_stays_as_it_was(build: Callable[[beam.Pipeline], None]) -> None:
    before, threads = what_a_worker_would_change(), set(threading.enumerate())
    with pipeline() as p:
        build(p)
    assert what_a_worker_would_change() == before
    left = {each for each in threading.enumerate() if each not in threads and not each.daemon}
    assert not [each for each in left if each.name.startswith("beam-job")]


def test_no_jvm_is_started() -> None:
    before = SparkContext._gateway
    with pipeline() as p:
        grouped(p)
    assert SparkContext._gateway is before


def test_log_lines_go_to_the_log_of_the_program(caplog: pytest.LogCaptureFixture) -> None:
    with pipeline() as p:
        _ = p | beam.Create([7]) | beam.Map(lambda number: logging.warning("number %d", number))
    assert "number 7" in caplog.messages


def test_a_wrong_result_is_an_error() -> None:
    with pytest.raises(BundleFailedError, match="Failed assert"), pipeline() as p:
        assert_that(p | beam.Create([1]), equal_to([2]))


class Waiting(beam.DoFn):  # type: ignore[misc]
    """Does not end by itself."""

    has_begun = threading.Event()

    def process(self, element: int) -> None:
        Waiting.has_begun.set()
        while True:
            time.sleep(0.01)


def test_a_pipeline_is_cancelled_within_its_user_code() -> None:
    p = pipeline()
    _ = p | beam.Create([1]) | beam.ParDo(Waiting())
    result = p.run()
    assert Waiting.has_begun.wait(60)
    assert result.cancel() == PipelineState.CANCELLED
    assert result.wait_until_finish() == PipelineState.CANCELLED


def test_two_pipelines_at_a_time() -> None:
    def run(number: int) -> None:
        with pipeline("--parallelism=3") as p:
            counts = p | beam.Create(range(number)) | beam.combiners.Count.Globally()
            assert_that(counts, equal_to([number]))

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(run, number) for number in (10, 20, 30, 40)]:
            each.result(120)


def test_tables_are_refused_with_their_step() -> None:
    with pytest.raises(PipelineRefusedError, match=r"Out.* without Spark"), pipeline() as p:
        _ = p | beam.Create([{"a": 1}]) | "Out" >> WriteToSpark(path="/nowhere", schema="a BIGINT")
    with pytest.raises(TableError, match="has no Spark that could read it"), pipeline() as p:
        _ = p | ReadFromSpark(query="select 1 as a")


def test_a_session_that_was_given_contradicts_it() -> None:
    with pytest.raises(OptionsError, match="uses no SparkSession"):
        pipeline(runner=SparkPortableRunner(spark=object())).run()  # type: ignore[arg-type]


def test_a_job_server_needs_a_spark() -> None:
    with pytest.raises(OptionsError, match="without a job server"):
        parse_server_options([IN_PROCESS])


def test_log_lines_are_among_the_messages_of_the_job(caplog: pytest.LogCaptureFixture) -> None:
    p = pipeline()
    _ = p | beam.Create([7]) | "Say" >> beam.Map(lambda number: logging.warning("said %d", number))
    result = p.run()
    result.wait_until_finish()
    (found,) = [each for each in result.messages() if "said 7" in each.message_text]
    assert "Say" in found.message_text
    assert caplog.messages.count("said 7") == 1


def test_a_program_without_a_log_sees_warnings_on_stderr(tmp_path: Any) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import logging, apache_beam as beam\n"
        "logging.getLogger().handlers.clear()\n"  # Beam's own imports may have added one
        "def say(number):\n"
        "    logging.getLogger('mine').warning('said %d', number)\n"
        "with beam.Pipeline(argv=['--runner=SparkPortableRunner', '--progress=off',\n"
        "                         '--spark_master_url=in-process']) as p:\n"
        "    p | beam.Create([7]) | beam.Map(say)\n"
    )
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=True
    )
    assert ended.stderr.count("said 7") == 1


def test_harnesses_that_are_kept_end_with_the_program(tmp_path: Any) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import apache_beam as beam\n"
        "with beam.Pipeline(argv=['--runner=SparkPortableRunner', '--progress=off',\n"
        "                         '--spark_master_url=in-process', '--environment_type=PROCESS',\n"
        "                         '--environment_config={}',\n"
        "                         '--environment_cache_millis=6000000']) as p:\n"
        "    p | beam.Create([7]) | beam.Map(lambda number: number)\n"
    )
    mark = {**os.environ, "PROGRAM_UNDER_TEST": str(tmp_path)}
    subprocess.run([sys.executable, str(script)], env=mark, timeout=120, check=True)
    while marked := processes_with(str(tmp_path)):
        psutil.wait_procs(marked, timeout=120)


def processes_with(mark: str) -> list[psutil.Process]:
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if each.environ().get("PROGRAM_UNDER_TEST") == mark:
                found.append(each)
    return found


def test_an_interrupt_between_run_and_wait_cancels_the_pipeline() -> None:
    program = """
import time, apache_beam as beam
def forever(_):
    while True:
        time.sleep(0.01)
p = beam.Pipeline(argv=['--runner=SparkPortableRunner', '--progress=off',
                        '--spark_master_url=in-process'])
p | beam.Create([1]) | beam.Map(forever)
p.run()
raise KeyboardInterrupt
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.returncode != 0
    assert "KeyboardInterrupt" in ended.stderr
