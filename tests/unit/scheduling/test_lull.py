"""When a task in which nothing happens is reported, and when it is given up."""

from collections.abc import Hashable

import pytest

from beam_spark_runner.scheduling.lull import EndTask, Lull, ReportLull

S = 1_000_000


def decisions(
    timeout_s: int | None, seen: list[tuple[int, Hashable | None]]
) -> list[tuple[int, object]]:
    """Return what is decided, and at which second."""
    lull = Lull(None if timeout_s is None else timeout_s * S)
    found = [(second, lull.on(what, second * S)) for second, what in seen]
    return [(second, decision) for second, decision in found if decision is not None]


def standing_still(until_s: int) -> list[tuple[int, Hashable | None]]:
    return [(second, 1) for second in range(until_s)]


@pytest.mark.parametrize(
    ("timeout_s", "seen", "decided"),
    [
        pytest.param(8, standing_still(4), [], id="not yet"),
        pytest.param(
            8,
            standing_still(10),
            [(4, ReportLull(4 * S)), (8, EndTask(8 * S)), (9, EndTask(9 * S))],
            id="after half of the time a report, and then the end",
        ),
        pytest.param(
            None,
            standing_still(1300),
            [(at, ReportLull(at * S)) for at in (300, 600, 1200)],
            id="without a timeout a report each time that it lasts twice as long",
        ),
        pytest.param(
            7200,
            standing_still(700),
            [(at, ReportLull(at * S)) for at in (300, 600)],
            id="half of a long timeout is too long for a report",
        ),
        pytest.param(
            8, [(second, second // 3) for second in range(60)], [], id="something happens"
        ),
        pytest.param(
            8,
            [(second, 1 if second % 3 else None) for second in range(60)],
            [],
            id="it waits for something else now and then",
        ),
        pytest.param(8, [(second, None) for second in range(60)], [], id="no user code runs"),
        pytest.param(
            8,
            [*standing_still(6), (6, 2), *[(second, 2) for second in range(7, 12)]],
            [(4, ReportLull(4 * S)), (10, ReportLull(4 * S))],
            id="another lull is another one",
        ),
        pytest.param(
            None,
            [(0, 1), (5000, 1), (5001, 1), (9599, 1), (9600, 1)],
            [(5000, ReportLull(5000 * S)), (9600, ReportLull(9600 * S))],
            id="nobody has looked for long: one report is enough",
        ),
    ],
)
def test_a_lull_is_logged_when_it_doubles_and_ended_at_its_timeout(
    timeout_s: int | None,
    seen: list[tuple[int, Hashable | None]],
    decided: list[tuple[int, object]],
) -> None:
    assert decisions(timeout_s, seen) == decided
