"""Random pipelines that stream give what Beam's model says, and what Beam's runners give.

``RANDOM_STREAMS`` says how many are drawn, ``RANDOM_STREAMS_FROM`` with which seed they begin.
Every pipeline is compared with the model, pane by pane; with Beam's runners those in which these
are right, see ``random_streams/disagreements.py``. Prism takes part where it is installed.
"""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.harvest import REUSED_PROCESS
from tests.segments import cut_at_each_exchange
from tests.spark.random_streams.comparing import check_dropped, check_same, check_same_unions
from tests.spark.random_streams.disagreements import (
    DIRECT,
    DISAGREEMENTS,
    PRISM,
    agrees,
    agrees_in_unions,
)
from tests.spark.random_streams.model.play import outputs_by_model, play
from tests.spark.random_streams.recipes import Pack, draw_pack
from tests.spark.random_streams.references import outputs_by, prism
from tests.spark.random_streams.running import Outputs, asking_for, run_pack
from tests.spark.random_streams.scripts import MAIN, without_side

pytestmark = pytest.mark.slow

PACK = 12
COUNT = int(os.environ.get("RANDOM_STREAMS", str(2 * PACK)))
FIRST = int(os.environ.get("RANDOM_STREAMS_FROM", "0"))
SEEDS = [
    FIRST,
    *(
        pytest.param(seed, marks=pytest.mark.rare)
        for seed in range(FIRST + 1, FIRST + COUNT // PACK)
    ),
]
DOCS = Path(__file__).parents[2] / "docs" / "conformance.md"


@pytest.mark.grpc
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_like_the_model_and_beams_runners(
    spark_session: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pack in one pipeline.

    Of every eight packs, one runs in SDK harnesses; of every four, one with a Spark job for each
    exchange.
    """
    pack = draw_pack(seed, PACK)
    if seed % 4 == 1:
        cut_at_each_exchange(monkeypatch)
    flags = REUSED_PROCESS if seed % 8 == 7 else ()
    ours, dropped = run_pack(asking_for(spark_session, pack), pack, *flags)
    model, dropped_by_model = play(pack.script, pack.recipes)
    check_same(ours, model, pack, pack.recipes, "by the model")
    check_dropped(dropped, dropped_by_model, pack)
    compared: Counter[str] = Counter()
    for other in [DIRECT, *([PRISM] if prism() else [])]:
        compared += _compare(other, ours, pack)
    print(
        f"seed {seed}: {sum(map(Counter.total, ours.values()))} elements, {dropped.total()} "
        f"dropped; {dict(compared)}"
    )


def _compare(other: str, ours: Outputs, pack: Pack) -> Counter[str]:
    exact, loose = (
        [number for number, recipe in pack.recipes.items() if whether(other, recipe, pack.script)]
        for whether in (agrees, agrees_in_unions)
    )
    some = Pack(pack.script, {number: pack.recipes[number] for number in (*exact, *loose)})
    if other == PRISM:  # it mixes the watermarks of two outputs
        some = Pack(without_side(pack.script), some.recipes, (MAIN,))
    theirs = outputs_by(other, some)
    check_same(ours, theirs, pack, exact, f"by {other}")
    check_same_unions(ours, theirs, pack, loose, f"by {other}")
    return Counter({f"{other}: same": len(exact), f"{other}: same unions": len(loose)})


def test_disagreements_are_documented() -> None:
    text = DOCS.read_text()
    for each in DISAGREEMENTS:
        assert f"\n| {each.name} | " in text


def test_a_difference_is_shown() -> None:
    """Else the test above would show nothing."""
    pack = draw_pack(0, PACK)
    model = outputs_by_model(pack.script, pack.recipes)
    label = next(label for label, elements in model.items() if elements)
    wrong = {**model, label: Counter([*model[label]][1:])}
    with pytest.raises(AssertionError, match="1 elements"):
        check_same(wrong, model, pack, pack.recipes, "by the model")
