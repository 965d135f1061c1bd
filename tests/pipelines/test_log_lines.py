"""What user code logs reaches the program that runs the pipeline, and is kept with the job."""

import logging
import re
import time
import warnings
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.backchannel.log_lines import LogHandler
from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.job.watching.messages import SDK_LOGGER
from tests.harvest import LOOPBACK, PROCESS, run
from tests.spark.transports import TRANSPORTS


class Says(beam.DoFn):  # type: ignore[misc]
    def process(self, element: int) -> Iterator[int]:
        logger = logging.getLogger("user.module")
        logger.debug("detail of %d", element)
        logger.info("saw %d", element)
        logger.warning("mind %d", element)
        yield element


class Fails(beam.DoFn):  # type: ignore[misc]
    def process(self, element: int) -> None:
        logging.getLogger("user.module").error("about to fail")
        raise ValueError("on purpose")


class Warns(beam.DoFn):  # type: ignore[misc]
    def process(self, element: int) -> Iterator[int]:
        warnings.warn("row by row", RuntimeWarning, stacklevel=1)
        yield element


class Floods(beam.DoFn):  # type: ignore[misc]
    def process(self, element: int) -> Iterator[int]:
        for number in range(element):
            logging.getLogger("user.module").info("line %d", number)
        yield element


def build_saying(p: beam.Pipeline) -> None:
    p | beam.Create([1, 2, 3]) | "Outer" >> Wrapped()


class Wrapped(beam.PTransform):  # type: ignore[misc]
    def expand(self, numbers: Any) -> Any:
        return numbers | "Say" >> beam.ParDo(Says())


@pytest.mark.spark
@pytest.mark.parametrize("flags", TRANSPORTS)
def test_lines_have_level_step_and_worker(
    on_spark: Any, caplog: pytest.LogCaptureFixture, flags: tuple[str, ...]
) -> None:
    caplog.set_level(logging.DEBUG, SDK_LOGGER)
    result = run(on_spark, build_saying, *flags)
    lines = [each for each in caplog.records if each.name == "user.module"]
    assert sorted((each.levelno, each.args[0]) for each in lines) == sorted(  # type: ignore[index]
        [(logging.INFO, f"saw {n}") for n in (1, 2, 3)]
        + [(logging.WARNING, f"mind {n}") for n in (1, 2, 3)]
    )
    assert {each.beam_step for each in lines} == {"Outer/Say"}  # type: ignore[attr-defined]
    workers = {each.beam_worker for each in lines}  # type: ignore[attr-defined]
    assert all(workers)
    kept = result.messages()
    job_message = beam_job_api_pb2.JobMessage
    assert sorted((each.importance, each.message_text.split(" [")[0]) for each in kept) == sorted(
        [(job_message.JOB_MESSAGE_BASIC, f"saw {n}") for n in (1, 2, 3)]
        + [(job_message.JOB_MESSAGE_WARNING, f"mind {n}") for n in (1, 2, 3)]
    )
    assert all(
        any(f"[Outer/Say, {worker}]" in each.message_text for worker in workers) for each in kept
    )


def test_lines_of_this_process_are_kept_and_shown_once(
    spark_session: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """With LOOPBACK they are the program's own: it shows them as its loggers say."""
    caplog.set_level(logging.INFO)
    logging.getLogger("user.module").warning("nobody's step")
    result = run(spark_session, build_saying, *LOOPBACK)
    shown = [each for each in caplog.records if each.name in ("user.module", SDK_LOGGER)]
    assert sorted((each.levelno, each.getMessage()) for each in shown) == sorted(
        [(logging.INFO, f"saw {n}") for n in (1, 2, 3)]
        + [(logging.WARNING, f"mind {n}") for n in (1, 2, 3)]
        + [(logging.WARNING, "nobody's step")]
    )
    job_message = beam_job_api_pb2.JobMessage
    kept = [re.sub(r"spark-\d+\]", "WORKER]", each.message_text) for each in result.messages()]
    assert sorted(
        zip((each.importance for each in result.messages()), kept, strict=True)
    ) == sorted(
        [(job_message.JOB_MESSAGE_BASIC, f"saw {n} [Outer/Say, WORKER]") for n in (1, 2, 3)]
        + [(job_message.JOB_MESSAGE_WARNING, f"mind {n} [Outer/Say, WORKER]") for n in (1, 2, 3)]
    )
    assert not [each for each in logging.getLogger().handlers if isinstance(each, LogHandler)]


class Catches(beam.DoFn):  # type: ignore[misc]
    def process(self, element: int) -> Iterator[int]:
        try:
            raise ValueError("caught")
        except ValueError:
            logging.getLogger("user.module").exception("went wrong")
        yield element


@pytest.mark.spark
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), id="socket"),
        pytest.param(("--backchannel=files",), id="files", marks=pytest.mark.rare),
        pytest.param(PROCESS, id="PROCESS", marks=pytest.mark.rare),
    ],
)
def test_a_traceback_is_shown_once(
    on_spark: Any, caplog: pytest.LogCaptureFixture, flags: tuple[str, ...]
) -> None:
    caplog.set_level(logging.DEBUG, SDK_LOGGER)
    result = run(
        on_spark, lambda p: p | beam.Create([1]) | "Catch" >> beam.ParDo(Catches()), *flags
    )
    (line,) = (each.getMessage() for each in caplog.records if each.name == "user.module")
    (kept,) = (each.message_text for each in result.messages())
    for text in (line, kept):
        assert text.removeprefix("ERROR: ").startswith("went wrong [Catch, ")
        assert text.count("Traceback (most recent call last)") == 1
        assert text.endswith("\nValueError: caught")


@pytest.mark.spark
def test_warnings_are_given_again(on_spark: Any) -> None:
    with pytest.warns(RuntimeWarning, match="row by row"):
        result = run(on_spark, lambda p: p | beam.Create([1]) | "Warn" >> beam.ParDo(Warns()))
    assert any("row by row [Warn, " in each.message_text for each in result.messages())


ONE_MODULE = (
    "--default_sdk_harness_log_level=ERROR",
    '--sdk_harness_log_level_overrides={"user.module":"DEBUG"}',
)


def said(spark: Any, *flags: str) -> set[str]:
    """Return what was said of elements."""
    messages = run(spark, build_saying, *flags).messages()
    texts = [each.message_text for each in messages if "[Outer/Say" in each.message_text]
    return {text.split()[0] for text in texts}


@pytest.mark.spark
def test_each_pipeline_in_the_same_workers_has_its_own_levels(on_spark: Any) -> None:
    for level, expected in (("DEBUG", {"detail", "saw", "mind"}), ("30", {"mind"})):
        assert said(on_spark, f"--default_sdk_harness_log_level={level}") == expected
        assert said(on_spark) == {"saw", "mind"}
    assert said(on_spark, '--sdk_harness_log_level_overrides={"user":"ERROR"}') == set()
    assert said(on_spark) == {"saw", "mind"}
    assert said(on_spark, *ONE_MODULE) == {"detail", "saw", "mind"}
    assert said(on_spark) == {"saw", "mind"}


@pytest.mark.spark
@pytest.mark.rare
def test_a_harness_obeys_levels(on_spark: Any) -> None:
    assert said(on_spark, *ONE_MODULE, *PROCESS) == {"detail", "saw", "mind"}


def test_a_failed_job_has_its_last_lines_and_the_reason(spark_session: Any) -> None:
    pipeline = beam.Pipeline(runner=SparkPortableRunner(spark=spark_session))
    pipeline | beam.Create([1]) | "Fail" >> beam.ParDo(Fails())
    result = pipeline.run()
    with pytest.raises(BundleFailedError):
        result.wait_until_finish()
    line, reason = result.messages()
    assert line.message_text.startswith("ERROR: about to fail [Fail, ")
    assert "ValueError: on purpose" in reason.message_text
    assert reason.importance == beam_job_api_pb2.JobMessage.JOB_MESSAGE_ERROR


def test_a_failed_job_in_this_process_tells_its_reason_once(
    spark_session: Any, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = beam.Pipeline(
        runner=SparkPortableRunner(spark=spark_session), options=PipelineOptions(list(LOOPBACK))
    )
    pipeline | beam.Create([1]) | "Fail" >> beam.ParDo(Fails())
    result = pipeline.run()
    with pytest.raises(BundleFailedError, match="ValueError: on purpose"):
        result.wait_until_finish()
    line, reason = result.messages()
    assert line.message_text.startswith("ERROR: about to fail [Fail, ")
    assert "ValueError: on purpose" in reason.message_text
    assert "on purpose" not in capfd.readouterr().err
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == [
        "about to fail"
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    "flags",
    [(), pytest.param(PROCESS, marks=pytest.mark.rare)],
    ids=["embedded", "PROCESS"],
)
def test_a_flood_is_cut_with_a_count(on_spark: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> None:
        p | beam.Create([100_000]) | "Flood" >> beam.ParDo(Floods())

    result = run(on_spark, build, *flags)
    *lines, last = [each.message_text for each in result.messages()]
    assert "log lines were dropped because there were too many" in last
    left_out = int(last.split()[0].replace(",", ""))
    assert 1_000 <= len(lines) < 10_000
    # A harness counts in a separate stream, of which the end may come too late.
    least = 90_000 if flags else 100_000
    assert least <= len(lines) + left_out <= 100_000


def test_without_a_backchannel_the_job_is_none_the_worse(spark_session: Any) -> None:
    check_that_nothing_is_said(spark_session, "--backchannel=off")


@pytest.mark.spark
@pytest.mark.rare
def test_a_backchannel_that_workers_do_not_reach(
    on_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An address of which nothing comes back (RFC 5737).
    monkeypatch.setattr(
        "beam_spark_runner.spark.session.handle.SessionHandle.driver_host",
        lambda _: ("127.0.0.1", "192.0.2.1"),
    )
    check_that_nothing_is_said(on_spark)


def check_that_nothing_is_said(spark: Any, *flags: str) -> None:
    began = time.monotonic()
    pipeline = beam.Pipeline(
        runner=SparkPortableRunner(spark=spark), options=PipelineOptions(list(flags))
    )
    build_saying(pipeline)
    result = pipeline.run()
    assert result.wait_until_finish() == "DONE"
    assert time.monotonic() - began < 90
    assert result.messages() == ()
