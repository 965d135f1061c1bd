"""User code in SDK harnesses, next to the Python workers: what the embedded harness does, too."""

import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics
from apache_beam.options.value_provider import RuntimeValueProvider
from apache_beam.pvalue import AsDict, AsIter, AsList, AsMultiMap, AsSingleton
from apache_beam.transforms.window import FixedWindows, Sessions, TimestampedValue

from beam_spark_runner import runner
from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.job.run import loopback
from tests.harvest import LOOPBACK, PROCESS, harvest, run

pytestmark = pytest.mark.grpc

LINES = ["to be or not to be", "that is the question"] * 50


class Counted(beam.DoFn):  # type: ignore[misc]
    def process(self, element: str) -> Any:
        Metrics.counter("test", "words").inc()
        Metrics.distribution("test", "lengths").update(len(element))
        yield element, os.getpid()


def build(p: beam.Pipeline) -> dict[str, Any]:
    words = p | beam.Create(LINES) | beam.FlatMap(str.split)
    counts = words | "count" >> beam.combiners.Count.PerElement()
    seen = words | beam.Reshuffle() | beam.ParDo(Counted())
    timed = p | "timed" >> beam.Create([("a", 1), ("a", 12), ("b", 2), ("a", 3)])
    windowed = (
        timed
        | beam.Map(lambda kv: TimestampedValue(kv, kv[1]))
        | beam.WindowInto(FixedWindows(10))
        | "by window" >> beam.GroupByKey()
    )
    sessions = (
        timed
        | "stamp" >> beam.Map(lambda kv: TimestampedValue(kv, kv[1]))
        | "sessions" >> beam.WindowInto(Sessions(5))
        | "by session" >> beam.GroupByKey()
    )
    one, two = words | beam.Map(len) | beam.Partition(lambda n, _: int(n > 2), 2)
    return {
        "counts": counts,
        "pids": seen | "pids" >> beam.Values() | beam.Distinct(),
        "windowed": windowed | beam.MapTuple(lambda k, vs: (k, sorted(vs))),
        "sessions": sessions | "sort" >> beam.MapTuple(lambda k, vs: (k, sorted(vs))),
        "grouped twice": counts
        | "by number" >> beam.GroupBy(lambda kv: kv[1])
        | "sort keys" >> beam.MapTuple(lambda n, kvs: (n, sorted(k for k, _ in kvs))),
        "groups of groups": counts
        | "grouped" >> beam.GroupByKey()
        | "regrouped" >> beam.GroupByKey()
        | "listed" >> beam.MapTuple(lambda k, vss: (k, [list(vs) for vs in vss])),
        "flattened": (one, two) | beam.Flatten() | "how many" >> beam.combiners.Count.Globally(),
        "views": p
        | "main" >> beam.Create(["be", "nothing"])
        | beam.Map(
            lambda x, table, many, single, listed, several: (
                x,
                table.get(x),
                list(many[x]),
                single,
                len(listed),
                sum(several),
            ),
            AsDict(counts),
            AsMultiMap(counts),
            AsSingleton(counts | "numbers" >> beam.Values() | beam.CombineGlobally(max)),
            AsList(words),
            AsIter(words | "lengths" >> beam.Map(len)),
        ),
    }


EXPECTED: dict[str, list[Any]] = {
    "counts": [
        *[("be", 100), ("is", 50), ("not", 50), ("or", 50), ("question", 50)],
        *[("that", 50), ("the", 50), ("to", 100)],
    ],
    "windowed": [("a", [1, 3]), ("a", [12]), ("b", [2])],
    "sessions": [("a", [1, 3]), ("a", [12]), ("b", [2])],
    "grouped twice": [
        (50, ["is", "not", "or", "question", "that", "the"]),
        (100, ["be", "to"]),
    ],
    "flattened": [500],
    "views": [("be", 100, [100], 100, 500, 1500), ("nothing", None, [], 100, 500, 1500)],
}


@pytest.mark.spark
def test_a_pipeline_of_all_kinds_next_to_workers(on_spark: Any) -> None:
    check_all_kinds(on_spark, PROCESS)


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(PROCESS, id="process", marks=pytest.mark.rare),
        pytest.param(LOOPBACK, id="loopback"),
    ],
)
def test_a_pipeline_of_all_kinds(spark_session: Any, flags: tuple[str, ...]) -> None:
    check_all_kinds(spark_session, flags)


def check_all_kinds(spark: Any, flags: tuple[str, ...]) -> None:
    found = harvest(spark, build, *flags)
    assert {label: found[label] for label in EXPECTED} == EXPECTED
    assert sorted(found["groups of groups"]) == [(k, [[n]]) for k, n in EXPECTED["counts"]]
    assert found.counter("words") == 500
    here = os.getpid()
    assert (found["pids"] == [here]) is (flags is LOOPBACK)


@pytest.mark.parametrize("flags", [PROCESS, LOOPBACK], ids=["process", "loopback"])
def test_value_providers(
    spark_session: Any, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RuntimeValueProvider, "runtime_options", None)
    name = RuntimeValueProvider("job_name", str, "nameless")
    found = harvest(
        spark_session,
        lambda p: {"names": p | beam.Impulse() | beam.Map(lambda _: name.get())},
        "--job_name=mine",
        *flags,
    )
    assert found["names"] == ["mine"]


def test_a_command_of_the_users(spark_session: Any) -> None:
    """With words to be told apart from: the harness's own environment variables."""
    python = sys.executable
    config = (
        f'{{"command": "{python} -m apache_beam.runners.worker.sdk_worker_main",'
        ' "env": {"COLOUR": "green"}}'
    )

    def colours(p: beam.Pipeline) -> dict[str, Any]:
        look = beam.Map(lambda _: (os.environ.get("COLOUR"), sys.argv[1].split("=")[0]))
        return {"colours": p | beam.Impulse() | look}

    found = harvest(
        spark_session, colours, "--environment_type=PROCESS", f"--environment_config={config}"
    )
    assert found["colours"] == [("green", "--id")]


def test_what_user_code_raises_names_the_step(spark_session: Any) -> None:
    def divide(p: beam.Pipeline) -> Any:
        return p | beam.Create([1, 0]) | "Divide it" >> beam.Map(lambda n: 1 // n)

    with pytest.raises(BundleFailedError) as raised:
        run(spark_session, divide, *PROCESS)
    assert raised.value.step == "Divide it"
    assert raised.value.cause == "ZeroDivisionError: integer division or modulo by zero"
    assert "1 // n" in raised.value.traceback_text


@pytest.mark.spark
def test_loopback_serves_once_the_jvm_runs(on_spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started by a fork, which is not safe where gRPC has threads."""
    order: list[str] = []
    for module, name in ((runner, "open_and_show"), (loopback, "LoopbackPool")):
        real = getattr(module, name)

        def noted(*args: Any, _real: Any = real, _name: str = name, **kwargs: Any) -> Any:
            order.append(_name)
            return _real(*args, **kwargs)

        monkeypatch.setattr(module, name, noted)
    run(on_spark, lambda p: p | beam.Create([1]), *LOOPBACK)
    assert order == ["open_and_show", "LoopbackPool"]


class TornDown(beam.DoFn):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def setup(self) -> None:
        self._name = uuid.uuid4().hex
        Path(self._folder, f"up{self._name}").touch()

    def process(self, element: int) -> Iterator[int]:
        logging.getLogger("user.module").warning("saw %d", element)
        yield element

    def teardown(self) -> None:
        Path(self._folder, f"down{self._name}").touch()


def test_loopback_ends_with_its_job(spark_session: Any, tmp_path: Path) -> None:
    """Its harnesses have torn down their DoFns, and no thread of theirs is left."""
    before = set(threading.enumerate())
    run(
        spark_session,
        lambda p: p | beam.Create(range(9), reshuffle=True) | beam.ParDo(TornDown(tmp_path)),
        *LOOPBACK,
    )
    names = [file.name for file in tmp_path.iterdir()]
    up = {name.removeprefix("up") for name in names if name.startswith("up")}
    assert up
    assert up == {name.removeprefix("down") for name in names if name.startswith("down")}

    def left() -> list[str]:
        names = [thread.name for thread in threading.enumerate() if thread not in before]
        # A process keeps its Fn API server. Of other servers, gRPC may have lost the end: see
        # harness/fn_api/serving.py.
        kept = ("_serve", "cancel_all_calls", "fn-api_")
        return [name for name in names if not any(each in name for each in kept)]

    deadline = time.monotonic() + 30  # gRPC ends its own threads a moment later
    while left() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left() == []
