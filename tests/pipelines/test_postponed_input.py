"""Steps that ask for stable input, or for the order of event time, in harnesses of every kind."""

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_stream import TestStream as Stream

from tests.harvest import LOOPBACK, RARE_HARNESSES, harvest_on
from tests.spark.asking import Asking
from tests.spark.sending import Sends, Story, sent, timed
from tests.spark.worker_pools import worker_pool

pytestmark = pytest.mark.grpc
EXTERNAL = ("a worker pool",)


@pytest.fixture(
    params=[
        *RARE_HARNESSES,
        pytest.param(LOOPBACK, id="loopback", marks=pytest.mark.rare),
        pytest.param(EXTERNAL, id="external", marks=pytest.mark.rare),
    ]
)
def flags(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """Options that say where user code runs."""
    if request.param != EXTERNAL:
        yield request.param
        return
    with worker_pool(tmp_path) as pool:
        yield pool.flags


def test_elements_and_timers_in_one_order(spark_session: Any, flags: tuple[str, ...]) -> None:
    of_a = functools.partial(timed, key="a")

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements(of_a(3, 1) + timed(7, key="b")).add_elements(of_a(2))
        events.advance_watermark_to(3).add_elements(of_a(5, 1, 4) + timed(6, key="b"))
        events.advance_watermark_to_infinity()
        story = p | events | "tell" >> beam.ParDo(Story()).with_output_types(tuple[str, str])
        return {"story": story}

    found = harvest_on(Asking(spark_session, in_order=["tell"]), build, *flags)
    assert found["story"] == [
        ("a", "1"),
        ("a", "1 1.5 2"),
        ("a", "1 1.5 2 2.5 3"),
        ("a", "1 1.5 2 2.5 3 3.5 4"),
        ("a", "1 1.5 2 2.5 3 3.5 4 4.5 5"),
        ("b", "6"),
        ("b", "6 6.5 7"),
    ]


@pytest.mark.parametrize("is_stable", [False, True])
def test_a_second_attempt_sees_what_the_first_one_saw(
    spark_session: Any, tmp_path: Path, flags: tuple[str, ...], is_stable: bool
) -> None:
    """In the middle of a fused stage; without the requirement it sees others."""
    flag = f"--checkpoint_dir={tmp_path / 'checkpoints'}"

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements(timed(*range(20))).advance_watermark_to_infinity()
        drawn = p | events | beam.Map(lambda pair: (*pair, random.random()))
        return {"sent": drawn | "send" >> beam.ParDo(Sends(tmp_path, 15))}

    runner = Asking(spark_session, stable=["send"] if is_stable else [])
    with pytest.raises(RuntimeError, match="stopped"):
        harvest_on(runner, build, *flags, flag)
    before = set(sent(tmp_path))
    found = harvest_on(runner, build, *flags, flag)
    assert [element[:2] for element in found["sent"]] == [("k", number) for number in range(20)]
    assert 0 < len(before) <= 20
    assert len({*sent(tmp_path)}) == (20 if is_stable else 20 + len(before))
    assert {*sent(tmp_path)} >= {*map(str, found["sent"])}
