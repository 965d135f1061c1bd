"""On a standalone cluster: what one machine never shows, and what a lost executor costs."""

import logging
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.runner import PipelineState

from beam_spark_runner.core.errors import BundleFailedError, OptionsError
from beam_spark_runner.runner import SparkPortableRunner
from integration.cluster import CHECKSUMS, QUICK, SLOTS, Cluster, wait_for_executors
from integration.pipelines import (
    Counted,
    FailsFirst,
    counters,
    large_side_input,
    mixed_attempts,
    on_hosts,
    random_keys,
    two_readers,
)
from integration.running import run, run_spread
from integration.streams import KEYS, windows_of_state

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]
RUNS = 8
KILLS = int(os.environ.get("KILLS", "16")) // 4


@pytest.fixture(scope="module")
def cluster_session(cluster: Cluster) -> Iterator[Any]:
    """A session in which executors die often."""
    with cluster.session("integration", QUICK) as session:
        yield session


@pytest.mark.parametrize("in_two_segments", [False, True], ids=["one segment", "two segments"])
def test_two_readers_of_random_numbers_see_the_same(
    cluster_session: Any, in_two_segments: bool
) -> None:
    for _ in range(RUNS):
        result = run_spread(
            cluster_session, lambda p: two_readers(p, 600, in_two_segments=in_two_segments)
        )
        assert counters(result) == {"drawn": 600}


def test_a_stream(cluster_session: Any, tmp_path: Path) -> None:
    arguments = (f"--temp_location={tmp_path}", f"--checkpoint_dir={tmp_path / 'checkpoints'}")
    result = run(cluster_session, windows_of_state, *arguments)
    assert counters(result) == {"elements": 3 * KEYS}


def test_what_is_spread_is_spread_over_the_hosts(cluster_session: Any) -> None:
    """Spark would rather run all tasks where the one that made the elements ran."""
    result = run_spread(cluster_session, lambda p: on_hosts(p, 24))
    assert counters(result) == dict.fromkeys(("127.0.0.1", "127.0.0.2"), 12)


@pytest.mark.parametrize("storage", ["executors", "shared storage"])
@pytest.mark.parametrize("checksums", ["on", "off"])
def test_killed_executors_cost_no_element(
    cluster: Cluster,
    cluster_session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    checksums: str,
    storage: str,
) -> None:
    """In and before every level in turn from inside, and at random moments from outside."""
    caplog.set_level(logging.WARNING)
    arguments = [f"--temp_location={tmp_path}"] if storage == "shared storage" else []
    if checksums == "off":
        arguments += [f"--spark_conf={key}=false" for key in CHECKSUMS]
    chance = random.Random(7)
    killed = 0
    for number in range(KILLS):
        markers: list[str | None] = [None, None, None]
        timer = None
        if number % 4 < 3:
            markers[number % 4] = str(tmp_path / f"killed-{number}")
        else:
            timer = threading.Timer(chance.uniform(0.2, 4), cluster.kill_executor, [number])
            timer.start()
        nth = 0 if number % 8 < 4 else chance.randrange(1, 60)
        late = bool(number & 1)
        result = run_spread(
            cluster_session,
            lambda p, m=markers, n=nth, late=late: random_keys(
                p, 1200, markers=m, nth=n, late_reader=late
            ),
            *arguments,
        )
        if timer is not None:
            timer.join()
        levels = {f"level {level}": 1200 for level in range(3)}
        assert counters(result) == ({**levels, "late": 1200} if late else levels)
        killed += sum(marker is not None and Path(marker).exists() for marker in markers)
    again = [text for text in caplog.messages if "again" in text]
    print(f"{checksums}, {storage}: {killed} died inside, segments run again: {len(again)}")
    for text in again:
        print("   ", text.replace("\n", " ")[-200:])
    assert killed >= KILLS // 2


@pytest.mark.parametrize("storage", ["executors", "shared storage"])
def test_readers_of_two_attempts_are_found_out(
    cluster_session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, storage: str
) -> None:
    """Without Spark's checksums the tasks that have ended are not run again: ours are all we have.

    All but one task have read the random keys, then an executor dies: the rest reads others.
    """
    caplog.set_level(logging.WARNING)
    wait_for_executors(cluster_session)  # else one makes all rows, and another is killed
    arguments = [f"--spark_conf={key}=false" for key in CHECKSUMS]
    if storage == "shared storage":
        arguments.append(f"--temp_location={tmp_path}")
    result = run_spread(
        cluster_session,
        lambda p: mixed_attempts(p, 1200, folder=str(tmp_path), tasks=SLOTS),
        *arguments,
    )
    assert counters(result) == {"counted": 1200}
    assert any("other attempts" in text for text in caplog.messages)


@pytest.mark.parametrize("storage", ["executors", "shared storage"])
def test_rows_that_went_with_an_executor(
    cluster_session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, storage: str
) -> None:
    """It dies while the second Spark job reads what the first one materialised."""
    caplog.set_level(logging.WARNING)
    arguments = [f"--temp_location={tmp_path}"] if storage == "shared storage" else []
    for number in range(3):
        marker = tmp_path / f"killed-{number}"
        result = run_spread(
            cluster_session,
            lambda p, marker=str(marker): random_keys(
                p, 1200, markers=[None] * 3, nth=5, late_reader=True, late_marker=marker
            ),
            *arguments,
        )
        levels = {f"level {level}": 1200 for level in range(3)}
        assert counters(result) == {**levels, "late": 1200}
        assert marker.exists()
    made_again = [text for text in caplog.messages if "are computed again" in text]
    print(storage, made_again)
    assert bool(made_again) == (storage == "executors")


@pytest.mark.parametrize("megabytes", [5, 40], ids=["at once", "in parts"])
def test_large_side_inputs_without_shared_storage(cluster_session: Any, megabytes: int) -> None:
    """One file on each executor, by Spark's broadcast."""
    result = run_spread(cluster_session, lambda p: large_side_input(p, megabytes))
    assert counters(result) == {"looked up": 400, "read through": 2}


def test_a_transient_error_is_survived(cluster_session: Any, tmp_path: Path) -> None:
    result = run_spread(
        cluster_session,
        lambda p: (
            p
            | beam.Create(range(200))
            | beam.ParDo(FailsFirst(str(tmp_path), times=1))
            | beam.ParDo(Counted("seen"))
        ),
    )
    assert counters(result) == {"seen": 200}
    assert len(list(tmp_path.iterdir())) == 1


def test_a_permanent_error_names_the_step(cluster_session: Any, tmp_path: Path) -> None:
    pipeline = beam.Pipeline(runner=SparkPortableRunner(cluster_session))
    _ = (
        pipeline
        | beam.Create(range(200))
        | beam.Reshuffle()
        | "Before" >> beam.ParDo(Counted("before"))
        | "Group" >> beam.GroupBy(lambda index: index)
        | beam.Keys()
        | "Break" >> beam.ParDo(FailsFirst(str(tmp_path), times=99))
        | "After" >> beam.ParDo(Counted("after"))
    )
    result = pipeline.run()
    with pytest.raises(BundleFailedError, match="no good: 77") as caught:
        result.wait_until_finish()
    assert caught.value.step == "Break"
    assert "FailsFirst" in caught.value.traceback_text or "process" in caught.value.traceback_text
    assert len(list(tmp_path.iterdir())) == 4  # Spark's own attempts, and no segment's
    assert counters(result, committed=False)["before"] == 200


@pytest.mark.parametrize("storage", ["executors", "shared storage"])
def test_stable_input_must_not_go_with_an_executor(
    cluster_session: Any, tmp_path: Path, storage: str
) -> None:
    runner = SparkPortableRunner(cluster_session)
    pipeline = beam.Pipeline(runner=runner)
    drawn = pipeline | beam.Create(range(200)) | beam.Map(lambda n: (n, random.random()))
    drawn | "send" >> beam.ParDo(Counted("sent"))
    proto = pipeline.to_runner_api()
    for each in proto.components.transforms.values():
        if each.unique_name == "send" and each.spec.urn == "beam:transform:pardo:v1":
            par_do = beam_runner_api_pb2.ParDoPayload.FromString(each.spec.payload)
            par_do.requires_stable_input = True
            each.spec.payload = par_do.SerializeToString()
    arguments = [f"--temp_location={tmp_path}"] if storage == "shared storage" else []
    result = runner.run_portable_pipeline(proto, PipelineOptions(arguments))
    if storage == "executors":
        with pytest.raises(OptionsError, match="--temp_location: send asks for stable input"):
            result.wait_until_finish()
        return
    assert result.wait_until_finish() == PipelineState.DONE
    assert counters(result) == {"sent": 200}
