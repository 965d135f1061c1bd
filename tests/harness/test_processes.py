"""SDK harnesses as processes: they start once, serve, and never stay behind."""

import ctypes
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import psutil
import pytest
from apache_beam.internal import cloudpickle_pickler
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.environments import ProcessEnvironment

from beam_spark_runner.core.errors import EnvironmentStartError, SdkDisconnectedError
from beam_spark_runner.harness.remote import sdk_harness
from beam_spark_runner.harness.remote import sdk_harness as worker_module
from beam_spark_runner.harness.remote import sdk_harnesses as module
from beam_spark_runner.harness.remote.remote_stage import RemoteStage
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from beam_spark_runner.harness.remote.settings import HarnessSettings
from tests.harness.conftest import BARE, Collected, one_step, stage_in
from tests.harness.processes import is_alive, wait_for

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(120)]


@pytest.fixture
def beam_harness() -> Iterator[Callable[..., RemoteStage]]:
    """Stages on Beam's own ``sdk_worker_main``, or on another command."""

    def make(command: str = "", **settings: Any) -> RemoteStage:
        return stage_in(ProcessEnvironment(command), one_step, **settings)

    yield make
    sdk_harnesses.stop()
    wait_for(lambda: harnesses() == [])


def run_one(stage: RemoteStage) -> list[Any]:
    collected = Collected()
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, collected), {})
    try:
        bundle.push([b"abc"], [BARE])
        bundle.finish()
    except BaseException:
        bundle.abort()
        raise
    return collected.values


def harnesses() -> list[int]:
    """Guards and harnesses that this process has started."""
    found = psutil.Process().children(recursive=True)
    return [each.pid for each in found if is_alive(each.pid)]


def test_one_harness_serves_all_bundles_of_a_job_and_expires(
    beam_harness: Callable[..., RemoteStage], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_one(beam_harness()) == [b"ABC"]
    first = harnesses()
    assert run_one(beam_harness()) == [b"ABC"]
    assert harnesses() == first
    assert len(first) == 2
    monkeypatch.setattr(module, "MAX_IDLE_S", 0.5)
    assert run_one(beam_harness()) == [b"ABC"]
    wait_for(lambda: harnesses() == [])
    assert run_one(beam_harness()) == [b"ABC"]


def test_a_job_has_harnesses_of_its_own_and_their_end_is_its_end(
    beam_harness: Callable[..., RemoteStage],
) -> None:
    run_one(beam_harness(job_id="a"))
    of_a = set(harnesses())
    run_one(beam_harness(job_id="b"))
    of_b = set(harnesses()) - of_a
    assert of_b
    run_one(beam_harness(job_id="a"))
    assert set(harnesses()) == of_a | of_b
    sdk_harnesses.end_job("a")
    wait_for(lambda: set(harnesses()) == of_b)


def test_a_cached_harness_is_another_jobs_if_that_is_the_same_but_for_its_id(
    beam_harness: Callable[..., RemoteStage],
) -> None:
    run_one(beam_harness(job_id="a", cache_s=60.0))
    of_a = set(harnesses())
    sdk_harnesses.end_job("a")
    run_one(beam_harness(job_id="b", cache_s=60.0))
    assert set(harnesses()) == of_a
    run_one(beam_harness(job_id="c", cache_s=60.0, options={"job_name": "c"}))
    run_one(beam_harness(job_id="d"))
    assert of_a < set(harnesses())


def test_few_harnesses_wait_for_jobs_that_may_never_come(
    beam_harness: Callable[..., RemoteStage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each job has a name, no other has the same options."""
    monkeypatch.setattr(module, "MAX_OF_OTHER_JOBS", 1)

    def run_job(name: str) -> set[int]:
        before = set(harnesses())
        run_one(beam_harness(job_id=name, options={"job_name": name}, cache_s=60.0))
        return set(harnesses()) - before

    of_a, of_b = run_job("a"), run_job("b")
    assert all(map(is_alive, of_a))
    of_c = run_job("c")
    wait_for(lambda: not any(map(is_alive, of_a)))
    assert run_job("b") == set()
    assert all(map(is_alive, of_b | of_c))


def test_stages_are_spread_over_several_harnesses(
    beam_harness: Callable[..., RemoteStage],
) -> None:
    """--sdk_worker_parallelism: bundles of two stages that run side by side."""
    stages = [beam_harness(parallelism=2, stage=number) for number in (0, 1)]
    bundles = [
        each.start_bundle(dict.fromkeys(each.output_coders, Collected()), {}) for each in stages
    ]
    workers = [pid for pid in harnesses() if "sdk_worker_main" in " ".join(_command(pid)[2:])]
    assert len(workers) == 2
    for bundle in bundles:
        bundle.finish()
    run_one(stages[0])
    assert len(harnesses()) == 4  # each has its guard


def test_a_harness_says_where_its_code_is(
    beam_harness: Callable[..., RemoteStage],
) -> None:
    """Beam's own harness opens the status stream, and answers with the stacks of its threads."""
    stage = beam_harness()
    run_one(stage)
    (kept,) = sdk_harnesses._entries.values()
    status = kept.worker.connection.status
    wait_for(lambda: status.ask(5.0))
    assert "THREAD DUMP" in (status.ask(5.0) or "")


def test_a_harness_that_is_killed_in_a_bundle(
    beam_harness: Callable[..., RemoteStage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_harness, "_LAST_WORDS_S", 30.0)
    stage = beam_harness()
    run_one(stage)
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {})
    bundle.push([b"abc"], [BARE])
    harness = next(pid for pid in harnesses() if "sdk_worker_main" in " ".join(_command(pid)[2:]))
    os.kill(harness, signal.SIGKILL)
    with pytest.raises(SdkDisconnectedError, match=r"ended with signal 9 while a bundle ran") as e:
        bundle.finish()
    bundle.abort()
    assert "Control channel established" in e.value.output
    assert run_one(stage) == [b"ABC"]


def _command(pid: int) -> list[str]:
    try:
        command: list[str] = psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:
        return []
    return [] if "guard.py" in " ".join(command) else command


@pytest.mark.parametrize(
    ("command", "timeout_s", "words"),
    [
        ("/no/such/program", 60, "ended with status 127 before it connected"),
        (f"{sys.executable} -c 'print(1/0)'", 60, "ZeroDivisionError"),
        (f"{sys.executable} -c 'import time; time.sleep(60)'", 1, "did not connect within 1 s"),
    ],
)
def test_a_harness_that_does_not_start(
    beam_harness: Callable[..., RemoteStage], command: str, timeout_s: float, words: str
) -> None:
    with pytest.raises(EnvironmentStartError) as raised:
        run_one(beam_harness(command, start_timeout_s=timeout_s))
    assert words in str(raised.value)
    wait_for(lambda: harnesses() == [])


READS_OPTIONS = """
import json, os, stat
with open(os.environ["PIPELINE_OPTIONS_FILE"]) as file:
    sizes = {name: len(value) for name, value in json.load(file).items()}
    print(sizes, oct(stat.S_IMODE(os.fstat(file.fileno()).st_mode)), flush=True)
"""


def test_options_of_any_size_reach_a_harness(beam_harness: Callable[..., RemoteStage]) -> None:
    assert run_one(beam_harness(options={"sql": "x" * 200_000})) == [b"ABC"]


def test_long_options_are_in_a_file_for_a_command_of_the_users(
    beam_harness: Callable[..., RemoteStage],
) -> None:
    command = shlex.join([sys.executable, "-c", READS_OPTIONS])
    with pytest.raises(EnvironmentStartError) as raised:
        run_one(beam_harness(command, options={"sql": "x" * 200_000}))
    assert raised.value.output == "{'beam:option:sql:v1': 200000} 0o600"


def test_a_variable_of_this_process_is_no_harnesss_options(
    beam_harness: Callable[..., RemoteStage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPELINE_OPTIONS_FILE", "/no/such/file")
    assert run_one(beam_harness()) == [b"ABC"]


class Finds(beam.DoFn):  # type: ignore[misc]
    """Finds a class of the main module by its name, as pickle does."""

    def process(self, element: bytes) -> Any:
        yield vars(sys.modules["__main__"].Found)["words"] + element


@pytest.mark.usefixtures("beam_harness")  # it ends the harness
@pytest.mark.parametrize("size", [1, 200_000], ids=["in a variable", "in a file"])
def test_a_harness_has_the_classes_of_the_main_module(size: int) -> None:
    found = type("Found", (), {"__module__": "__main__", "words": b"x" * size})

    def build(p: beam.Pipeline) -> Any:
        finds = beam.ParDo(Finds()).with_output_types(bytes)
        return p | beam.Impulse() | finds | beam.Reshuffle()

    classes = {"Found": cloudpickle_pickler.dumps(found)}
    stage = stage_in(ProcessEnvironment(""), build, main_classes=classes)
    assert run_one(stage) == [b"x" * size + b"abc"]


class Crash(beam.DoFn):  # type: ignore[misc]
    def process(self, element: bytes) -> Any:
        ctypes.string_at(0)


def test_a_harness_that_crashes_names_the_step_and_shows_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "_LAST_WORDS_S", 30.0)

    def build(p: beam.Pipeline) -> Any:
        return p | beam.Impulse() | "Die" >> beam.ParDo(Crash()) | beam.Reshuffle()

    stage = stage_in(ProcessEnvironment(""), build, options={"password": "secret"})
    with pytest.raises(SdkDisconnectedError, match=r"^Die: the SDK harness ended .*11") as raised:
        run_one(stage)
    sdk_harnesses.stop()
    assert "Fatal Python error: Segmentation fault" in raised.value.output
    assert "in process\n" in raised.value.output
    assert "secret" not in raised.value.output


def test_a_harness_of_no_kind_that_is_known() -> None:
    from beam_spark_runner.core.errors import InvariantError

    odd = beam_runner_api_pb2.Environment(urn="beam:env:odd:v1").SerializeToString()
    with pytest.raises(InvariantError, match="odd"):
        sdk_harnesses.acquire(odd, HarnessSettings(job_id="job"))
    sdk_harnesses.stop()
