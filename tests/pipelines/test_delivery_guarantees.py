"""``--delivery_guarantee``: what a sink writes when runs fail, and continue with the other one."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_stream import TestStream as Stream

from beam_spark_runner.core.errors import BundleFailedError, OptionsError
from beam_spark_runner.recovery.manifest import IncompatibleCheckpointError
from beam_spark_runner.savepoint import main
from beam_spark_runner.transforms import WriteToKafka
from beam_spark_runner.transforms.kafka import ExactlyOnce
from tests.harvest import run
from tests.pipelines.dying_drivers import Deaths, Died
from tests.pipelines.kafka_in_memory import Kafka

ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"
SERVERS = {"bootstrap.servers": "broker:9092"}
NUMBERS = range(8)
GROUP = "the group"


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with Kafka().serving() as serving:
        yield serving


class FailsAt(beam.DoFn):  # type: ignore[misc]
    """Fails at the end of a bundle that has one of the numbers; after it, the sink has written."""

    def __init__(self, fatal: Sequence[int]) -> None:
        self._fatal = fatal

    def start_bundle(self) -> None:
        self._fails = False

    def process(self, pair: tuple[bytes, bytes]) -> Any:
        self._fails = self._fails or int(pair[1]) in self._fatal
        yield pair

    def finish_bundle(self) -> None:
        if self._fails:
            raise ValueError("dies here")


def copied(fatal: Sequence[int] = ()) -> Callable[[beam.Pipeline], None]:
    """Write numbers, each in its own epoch; die after some that a sink has got."""

    def build(p: beam.Pipeline) -> None:
        events = Stream().with_output_types(tuple[bytes, bytes])
        for number in NUMBERS:
            events.add_elements([(b"key %d" % number, b"%d" % number)])
        pairs = beam.Map(lambda pair: pair).with_output_types(tuple[bytes, bytes])
        numbers = p | events.advance_watermark_to_infinity() | "Pairs" >> pairs
        numbers | WriteToKafka(SERVERS, "sink", exactly_once=ExactlyOnce(2, GROUP))
        numbers | "Dies" >> beam.ParDo(FailsAt(fatal))

    return build


def run_here(build: Callable[[beam.Pipeline], None], *flags: str) -> None:
    """Run a pipeline in this process, which has the brokers."""
    run(None, build, "--spark_master_url=in-process", *flags)  # type: ignore[arg-type]


def written(kafka: Kafka) -> Counter[int]:
    return Counter(int(value) for value in kafka.values("sink"))


def test_at_least_once_writes_without_transactions(kafka: Kafka) -> None:
    run_here(copied(), f"--delivery_guarantee={AT_LEAST_ONCE}")
    assert written(kafka) == Counter(NUMBERS)
    assert {record.by for record in kafka.records} == {""}


def test_exactly_once_is_the_default(kafka: Kafka) -> None:
    run_here(copied())
    assert written(kafka) == Counter(NUMBERS)
    assert {record.by for record in kafka.records} == {f"{GROUP}-0", f"{GROUP}-1"}


def test_what_an_epoch_did_not_commit_is_written_again(kafka: Kafka, tmp_path: Path) -> None:
    flags = f"--delivery_guarantee={AT_LEAST_ONCE}", f"--checkpoint_dir={tmp_path}"
    with pytest.raises(BundleFailedError):
        run_here(copied(fatal=[5]), *flags)
    run_here(copied(), *flags)
    assert set(written(kafka)) == set(NUMBERS)
    doubled = {number for number, times in written(kafka).items() if times > 1}
    assert doubled <= {5}, "those of earlier epochs were committed"


@pytest.mark.parametrize("first", [ONCE, AT_LEAST_ONCE])
def test_a_pipeline_continues_with_the_other_guarantee(
    kafka: Kafka, tmp_path: Path, first: str
) -> None:
    """Records that wait in the checkpoint for their transaction are written; numbers continue."""
    second = AT_LEAST_ONCE if first == ONCE else ONCE
    for fatal, guarantee in (([3], first), ([6], second), ([], first)):
        flags = f"--checkpoint_dir={tmp_path}", f"--delivery_guarantee={guarantee}"
        if fatal:
            with pytest.raises(BundleFailedError):
                run_here(copied(fatal), *flags)
        else:
            run_here(copied(fatal), *flags)
    assert set(written(kafka)) == set(NUMBERS)
    in_doubt = {3 if first == AT_LEAST_ONCE else 6}  # of the epoch that died at least once
    doubled = {number for number, times in written(kafka).items() if times > 1}
    assert doubled <= in_doubt
    assert {record.by for record in kafka.records} > {""}


def dies_and_continues(
    kafka: Kafka, folder: Path, at: int | None, guarantees: tuple[str, str]
) -> int:
    """Let a driver die at a change of its checkpoint; check what it and the next one write.

    Returns:
        How many changes there were until the first driver ended.
    """
    deaths = Deaths(folder, at)
    flags = [(f"--checkpoint_dir={folder}", f"--delivery_guarantee={each}") for each in guarantees]
    with deaths.striking(), contextlib.suppress(Died):
        run_here(copied(), *flags[0])
    run_here(copied(), *flags[1])
    times = written(kafka)
    assert set(times) == set(NUMBERS), f"at {at}: something is lost"
    # The epoch that was not committed has one number, and the sink got it.
    most_doubled = 0 if guarantees[0] == ONCE else 1
    assert times.total() <= len(NUMBERS) + most_doubled, f"at {at}: {times}"
    return len(deaths.changes)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("at", "guarantees"),
    [
        (20, (AT_LEAST_ONCE, AT_LEAST_ONCE)),
        (31, (ONCE, AT_LEAST_ONCE)),
        (20, (AT_LEAST_ONCE, ONCE)),
    ],
)
def test_a_driver_dies(kafka: Kafka, tmp_path: Path, at: int, guarantees: tuple[str, str]) -> None:
    """One moment of each; the rare test has all."""
    changes = dies_and_continues(kafka, tmp_path, at, guarantees)
    assert changes == at + 1, "it has died"


@pytest.mark.rare
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("first", [ONCE, AT_LEAST_ONCE])
@pytest.mark.parametrize("second", [ONCE, AT_LEAST_ONCE])
def test_a_driver_dies_at_any_moment(tmp_path: Path, first: str, second: str) -> None:
    with Kafka().serving() as kafka:
        both = first, second
        changes = dies_and_continues(kafka, tmp_path / "all", None, both)
    for at in range(changes):
        with Kafka().serving() as kafka:
            dies_and_continues(kafka, tmp_path / f"{at}", at, both)


def test_a_savepoint_begins_with_the_other_guarantee(kafka: Kafka, tmp_path: Path) -> None:
    checkpoint, savepoint = tmp_path / "checkpoint", tmp_path / "savepoint"
    with pytest.raises(BundleFailedError):
        run_here(copied([6]), f"--checkpoint_dir={checkpoint}")
    main([f"--checkpoint_dir={checkpoint}", f"--savepoint_path={savepoint}"])
    flags = (
        f"--checkpoint_dir={tmp_path / 'other'}",
        f"--savepoint_path={savepoint}",
        f"--delivery_guarantee={AT_LEAST_ONCE}",
    )
    run_here(copied(), *flags)
    assert written(kafka) == Counter(NUMBERS)


def test_a_batch_job_continues_only_as_it_began(kafka: Kafka, tmp_path: Path) -> None:
    def build(fatal: Sequence[int]) -> Callable[[beam.Pipeline], None]:
        def build_it(p: beam.Pipeline) -> None:
            numbers = p | beam.Create([(b"k", b"1")]) | beam.Reshuffle()
            numbers | WriteToKafka(SERVERS, "sink", exactly_once=ExactlyOnce(2, GROUP))
            numbers | "Dies" >> beam.ParDo(FailsAt(fatal))

        return build_it

    flags = "--batch_job_recovery", f"--checkpoint_dir={tmp_path}"
    with pytest.raises(BundleFailedError):
        run_here(build([1]), *flags)
    with pytest.raises(IncompatibleCheckpointError, match="Exactly once/Write is missing"):
        run_here(build([]), *flags, f"--delivery_guarantee={AT_LEAST_ONCE}")


def test_other_guarantees_are_refused_where_the_sink_is_applied(kafka: Kafka) -> None:
    with pytest.raises(OptionsError, match="delivery_guarantee: 'once' is not one of: exactly_"):
        copied()(beam.Pipeline(argv=["--delivery_guarantee=once"]))
