"""Which segment and level each stage gets, on hand-made edges."""

from collections.abc import Iterable

import pytest

from beam_spark_runner.core.ids import StageId
from beam_spark_runner.plan.layout import Edges, lay_out


def edges(*stages: tuple[list[int], bool, list[int]], stable: Iterable[int] = ()) -> Edges:
    """Give edges from (makers of the main input, exchange in front?, makers of side inputs)."""
    result = Edges(len(stages), is_stable=set(map(StageId, stable)))
    for main, has_exchange, side in stages:
        result.main.append(tuple(map(StageId, main)))
        result.has_exchange.append(has_exchange)
        result.side.append(tuple(map(StageId, side)))
    return result


def places(laid: Edges, exchanges: int = 12, destinations: int = 250) -> list[tuple[int, int, int]]:
    laid_out = lay_out(laid, max_exchanges=exchanges, max_destinations=destinations)
    return [(*place.segment, place.level) for place in laid_out]


POINT, EXCHANGE = False, True


@pytest.mark.parametrize(
    ("laid", "expected"),
    [
        pytest.param(
            edges(([], POINT, []), ([0], POINT, []), ([1], EXCHANGE, [])),
            [(0, 0, 0), (0, 0, 0), (0, 0, 1)],
            id="pointwise edges stay in the level, an exchange opens one",
        ),
        pytest.param(
            edges(([], POINT, []), ([0], EXCHANGE, []), ([0, 1], POINT, [])),
            [(0, 0, 0), (0, 0, 1), (0, 0, 1)],
            id="a reader sits after the deepest of its makers",
        ),
        pytest.param(
            edges(([], POINT, []), ([], POINT, []), ([0], POINT, [1])),
            [(1, 0, 0), (0, 0, 0), (1, 0, 0)],
            id="a main input is made where it is read, not before the side input is there",
        ),
        pytest.param(
            edges(([], POINT, []), ([0], POINT, [0])),
            [(0, 0, 0), (1, 0, 0)],
            id="main and side input from one stage",
        ),
        pytest.param(
            edges(([], POINT, []), ([], POINT, []), ([0], POINT, [1]), ([0], EXCHANGE, [])),
            [(0, 0, 0), (0, 0, 0), (1, 0, 0), (0, 0, 1)],
            id="the earliest reader decides; a stage that nobody reads runs as soon as it can",
        ),
        pytest.param(
            edges(([], POINT, []), ([0], EXCHANGE, [0]), ([1], EXCHANGE, [])),
            [(0, 0, 0), (1, 0, 1), (1, 0, 2)],
            id="materialised rows that need an exchange are read at level 1",
        ),
        pytest.param(
            edges(([], POINT, []), ([], POINT, [0]), ([], POINT, [1]), ([0, 2], EXCHANGE, [])),
            [(0, 0, 0), (1, 0, 0), (2, 0, 0), (2, 0, 1)],
            id="side inputs in a row",
        ),
        pytest.param(
            edges(([], POINT, []), ([0], EXCHANGE, []), ([1], POINT, []), stable=[2]),
            [(0, 0, 0), (0, 0, 1), (1, 0, 0)],
            id="stable input is made in an earlier segment",
        ),
        pytest.param(
            edges(
                ([], POINT, []),
                ([0], POINT, []),
                ([1], EXCHANGE, []),
                ([2, 0], POINT, []),
                ([3], POINT, [0]),
                stable=[1, 3],
            ),
            [(0, 0, 0), (1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 0, 0)],
            id="twice; what both read is made for the first",
        ),
    ],
)
def test_places(laid: Edges, expected: list[tuple[int, int, int]]) -> None:
    assert places(laid) == expected


def test_a_deep_segment_is_cut() -> None:
    chain = edges(([], POINT, []), *(([maker], EXCHANGE, []) for maker in range(5)))
    assert places(chain, exchanges=2) == [
        (0, 0, 0),
        (0, 0, 1),
        (0, 0, 2),
        (0, 1, 1),
        (0, 1, 2),
        (0, 2, 1),
    ]


def test_a_source_that_is_read_behind_a_cut_runs_there() -> None:
    laid = edges(
        ([], POINT, []),
        ([0], EXCHANGE, []),
        ([1], EXCHANGE, []),
        ([], POINT, []),
        ([3], POINT, []),
        ([2, 4], EXCHANGE, []),
    )
    assert places(laid, exchanges=2) == [
        (0, 0, 0),
        (0, 0, 1),
        (0, 0, 2),
        (0, 1, 0),
        (0, 1, 0),
        (0, 1, 1),
    ]


def test_a_full_level_flows_over_into_the_next() -> None:
    laid = edges(([], POINT, []), *(([0], EXCHANGE, []) for _ in range(5)), ([1], EXCHANGE, []))
    assert [place[2] for place in places(laid, destinations=2)] == [0, 1, 1, 2, 2, 3, 3]


def test_all_sources_run_in_front_if_they_are_not_to_move() -> None:
    laid = edges(
        ([], POINT, []),
        ([0], EXCHANGE, []),
        ([1], EXCHANGE, []),
        ([], POINT, []),
        ([2, 3], EXCHANGE, []),
    )
    laid_out = lay_out(laid, max_exchanges=2, max_destinations=250, moves_sources=False)
    assert [(*place.segment, place.level) for place in laid_out] == [
        (0, 0, 0),
        (0, 0, 1),
        (0, 0, 2),
        (0, 0, 0),
        (0, 1, 1),
    ]


def test_stages_after_a_write_come_after_all_others() -> None:
    laid = edges(([], POINT, []), ([], POINT, []), ([1], POINT, []), ([0, 1], POINT, [2]))
    laid.writes_before[StageId(1)] = laid.writes_before[StageId(2)] = 1
    laid.writes_before[StageId(3)] = 1
    found = [segment for segment, *_ in places(laid)]
    assert found[0] <= laid.end_after(0) - 1
    assert laid.end_after(0) < found[1] == found[2] < found[3] < laid.end_after(1)


def test_each_level_may_be_a_segment() -> None:
    laid = edges(
        ([], POINT, []),
        ([0], EXCHANGE, []),
        ([1], POINT, []),
        ([2], EXCHANGE, []),
        ([0, 3], POINT, []),
    )
    laid_out = lay_out(laid, max_exchanges=12, max_destinations=250, separates_levels=True)
    assert [(*place.segment, place.level) for place in laid_out] == [
        (0, 0, 0),
        (0, 1, 1),
        (0, 1, 1),
        (0, 2, 1),
        (0, 2, 1),
    ]
