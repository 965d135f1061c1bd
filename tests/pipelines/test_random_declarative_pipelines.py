"""Random pipelines of declarative steps emit what a model says: here and on Beam's own runner.

Each pack of them is one pipeline.
"""

import dataclasses
import operator
import random
from pathlib import Path
from typing import Any

import pytest
from apache_beam.runners.portability.prism_runner import PrismRunner
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from beam_spark_runner.engine.stages import opening
from tests.declared_packs import check, in_batch, in_epochs
from tests.declared_pipelines import draw_pack
from tests.declared_programs import OPERATIONS
from tests.harvest import harvest, harvest_on
from tests.spark.random_streams.references import prism
from tests.state_store.servers import redis_server

PACK = 10
PACKS = [1, pytest.param(20, marks=[pytest.mark.rare, pytest.mark.timeout(1200)])]


def drawing(packs: int) -> settings:
    return settings(
        max_examples=packs,
        deadline=None,
        phases=[Phase.generate],  # a pack would not become smaller; the failed assertion has one
        suppress_health_check=list(HealthCheck),
        derandomize=packs == 1,
    )


@pytest.mark.parametrize("packs", PACKS)
def test_like_the_model_and_beams_runner(spark_session: Any, packs: int) -> None:
    emitted: list[int] = []

    @drawing(packs)
    @given(seed=st.integers(0, 1 << 32))
    def compare(seed: int) -> None:
        recipes = draw_pack(random.Random(seed), PACK)
        emitted.append(check(harvest(spark_session, in_batch(recipes)), recipes))
        check(harvest(spark_session, in_epochs(recipes), "--streaming"), recipes)
        check(harvest_on("FnApiRunner", in_batch(recipes)), recipes)

    compare()
    print(f"{PACK * len(emitted)} pipelines, {sum(emitted)} elements")
    assert sum(emitted) > 50 * packs


@pytest.mark.parametrize("packs", PACKS)
def test_like_the_model_while_reads_are_left(
    spark_session: Any, packs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are in a state store, and each epoch leaves what it can for the next one."""
    monkeypatch.setattr(
        opening, "_leaves_after_us", lambda context: None if context.task.epoch.drains else 0
    )
    emitted: list[int] = []
    with redis_server(tmp_path) as server:
        flags = ("--streaming", f"--state_store={server.url}", "--unaligned_state_requests")

        @drawing(packs)
        @given(seed=st.integers(0, 1 << 32))
        def compare(seed: int) -> None:
            recipes = draw_pack(random.Random(seed), PACK)
            emitted.append(check(harvest(spark_session, in_epochs(recipes), *flags), recipes))

        compare()
    print(f"{PACK * len(emitted)} pipelines, {sum(emitted)} elements")
    assert sum(emitted) > 50 * packs


@pytest.mark.rare
@pytest.mark.timeout(600)
@pytest.mark.skipif(not prism(), reason="Prism is not installed")
def test_like_prism() -> None:
    """Prism orders the elements of a key by time. With ordered lists it hangs, or ends."""
    kinds = [kind for kind in OPERATIONS if kind != "list"]

    @drawing(10)
    @given(seed=st.integers(0, 1 << 32))
    def compare(seed: int) -> None:
        recipes = [
            dataclasses.replace(each, elements=sorted(each.elements, key=operator.itemgetter(1)))
            for each in draw_pack(random.Random(seed), PACK, kinds)
        ]
        flags = f"--prism_location={prism()}", "--prism_log_level=error"
        check(harvest_on(PrismRunner(), in_batch(recipes), *flags), recipes)

    compare()
