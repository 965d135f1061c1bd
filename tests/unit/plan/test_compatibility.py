import pytest

from beam_spark_runner.graph.passes import STREAMING, run_passes
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.compatibility import must_not_change
from tests.golden.notation import parse

GIVEN = """Events: test_stream() -> events
Pair: pardo(events) -> pairs @py
Group: group_by_key(pairs) -> groups
Count: pardo(groups) -> counted @py state=count timers=due
pairs :: kv<bytes,bytes>, fixed
groups :: kv<bytes,iterable<bytes>>, fixed
counted :: kv<bytes,bytes>
"""
WITH_SIDE_INPUT = """Events: test_stream() -> events
Rates: impulse() -> rates
Look: pardo(events, rates as iterable) -> found @py
rates :: bytes, fixed
"""


def found(given: str, max_exchanges: int = 12) -> dict[str, str]:
    graph = run_passes(parse(given), STREAMING)
    return dict(must_not_change(build(graph, max_exchanges=max_exchanges, streams=True)))


def test_each_step_and_where_it_stores_what() -> None:
    assert found(GIVEN)["step Count"].startswith(
        "beam:transform:pardo:v1, stage 1, level 1, state count, timer due, "
    )
    assert found(GIVEN).keys() == {"step Pair", "step Count"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("state=count", "state=number"),
        ("timers=due", "timers=late"),
        ("timers=due", "timers=due stable"),
        ("timers=due", "timers=due sorted"),
        ("Count: pardo(groups)", "Sum: pardo(groups)"),
        ("kv<bytes,iterable<bytes>>, fixed", "kv<bytes,iterable<bytes>>, sliding"),
    ],
)
def test_what_changes_is_noticed(before: str, after: str) -> None:
    assert found(GIVEN) == found(GIVEN)
    assert found(GIVEN.replace(before, after)) != found(GIVEN)


def test_what_a_side_input_stores() -> None:
    given = WITH_SIDE_INPUT
    assert found(given)["side input of Look"].startswith("stage 2, level 1, in parts, ")
    together = given.replace("bytes, fixed", "bytes, fixed trigger=after_count")
    assert found(together)["side input of Look"].startswith("stage 2, level 1, ")
    assert "in parts" not in found(together)["side input of Look"]
    assert found(given) != found(given.replace("bytes, fixed", "bytes, sliding"))


def test_levels_are_counted_over_all_segments() -> None:
    deep = GIVEN.replace("Group:", "Spread: reshuffle(pairs) -> spread\nGroup:")
    deep = deep.replace("group_by_key(pairs)", "group_by_key(spread)")
    deep += "spread :: kv<bytes,bytes>, fixed\n"
    assert ", level 2, " in found(deep)["step Count"]
    assert found(deep, max_exchanges=1) == found(deep)
