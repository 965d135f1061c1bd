"""A pipeline fails with the exception that user code raised, as on Beam's other runners."""

import sqlite3
from pathlib import Path
from typing import Any, NoReturn

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_pipeline
from apache_beam.testing.util import BeamAssertException, assert_that, equal_to

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import BEAMS_OWN, LOOPBACK, REUSED_PROCESS, run

HARNESSES = {
    "embedded": (),
    "PROCESS": REUSED_PROCESS,
    "Beam's own": BEAMS_OWN,
    "LOOPBACK": LOOPBACK,
}


class RefusedError(LookupError):
    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(code)
        self.code, self.reason = code, reason

    def __str__(self) -> str:
        return f"{self.reason} ({self.code})"


def refuse(element: int) -> NoReturn:
    try:
        raise KeyError(element)
    except KeyError as error:
        raise RefusedError(5, reason="no such thing") from error


@pytest.mark.parametrize(
    "harness",
    [
        each if each == "embedded" else pytest.param(each, marks=pytest.mark.rare)
        for each in HARNESSES
    ],
)
def test_it_is_caught_by_its_type(spark_session: Any, harness: str) -> None:
    with pytest.raises(RefusedError, match=r"no such thing \(5\)") as caught:
        run(
            spark_session,
            lambda p: p | beam.Create([1]) | "Bad" >> beam.Map(refuse),
            *HARNESSES[harness],
        )
    assert isinstance(caught.value, BundleFailedError)
    error: Any = caught.value
    assert error.step == "Bad"
    if harness in ("embedded", "PROCESS"):
        assert str(error).endswith("Element: 1\n")
    if harness == "embedded":
        assert (error.code, error.reason, error.args) == (5, "no such thing", (5,))


def test_assertions_fail_as_assertions(spark_session: Any) -> None:
    with (
        pytest.raises(BeamAssertException),
        test_pipeline.TestPipeline(
            runner=SparkPortableRunner(spark=spark_session), options=PipelineOptions([])
        ) as p,
    ):
        assert_that(p | beam.Create([1, 2]), equal_to([1, 3]))


class NotWritten(beam.DoFn):  # type: ignore[misc]
    def setup(self) -> None:
        raise NotImplementedError

    def process(self, element: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (beam.ParDo(NotWritten()), NotImplementedError),
        (beam.Map(lambda _: Path("/no/such/file").read_text()), OSError),
        (beam.Map(lambda _: sqlite3.connect(":memory:").execute("?")), sqlite3.Error),
        (beam.CombineGlobally(lambda values: dict[Any, Any]()[tuple(values)]), KeyError),
    ],
)
def test_errors_of_the_library(spark_session: Any, step: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        run(spark_session, lambda p: p | beam.Create([1]) | step)
    assert isinstance(caught.value, BundleFailedError)
