"""Whether all messages that tasks say they sent have arrived."""

from collections.abc import Callable

import pytest

from beam_spark_runner.backchannel.message_counts import MessageCounts

A, B = "worker a", "worker b"
Fact = Callable[[MessageCounts], None]


@pytest.mark.parametrize(
    ("facts", "unheard", "awaited"),
    [
        pytest.param([], [], [], id="nothing was sent"),
        pytest.param([lambda x: x.expect(A, 2)], [A], [], id="a worker has not called"),
        pytest.param([lambda x: x.expect(A, 1)], [A], [], id="one thing is enough to wait for"),
        pytest.param([lambda x: x.expect(A, 0)], [], [], id="a worker sent nothing"),
        pytest.param(
            [lambda x: x.expect(A, 2), lambda x: x.arrived(A, 2)], [], [], id="all has come"
        ),
        pytest.param(
            [lambda x: x.arrived(A, 3), lambda x: x.expect(A, 2), lambda x: x.expect(A, 1)],
            [],
            [],
            id="it came before the report, and reports come in any order",
        ),
        pytest.param([lambda x: x.expect(A, 2), lambda x: x.gone(A)], [], [], id="it is gone"),
        pytest.param(
            [lambda x: x.accepted(7, A), lambda x: x.accepted(8, B), lambda x: x.finalized([7])],
            [],
            [8],
            id="callbacks of one have run",
        ),
        pytest.param(
            [lambda x: x.accepted(7, A), lambda x: x.gone(A)], [], [], id="lost callbacks"
        ),
    ],
)
def test_what_is_waited_for(facts: list[Fact], unheard: list[str], awaited: list[int]) -> None:
    counts = MessageCounts()
    for fact in facts:
        fact(counts)
    assert counts.unheard() == frozenset(unheard)
    assert counts.awaited_callbacks() == frozenset(awaited)
    assert counts.are_complete() == (not unheard and not awaited)


def test_a_worker_that_has_called_may_still_owe_something() -> None:
    counts = MessageCounts()
    counts.expect(A, 2)
    counts.arrived(A, 1)
    assert not counts.unheard()
    assert not counts.are_complete()


def test_workers_tear_down_until_they_say_so_or_are_gone() -> None:
    counts = MessageCounts()
    assert counts.tearing_down() == frozenset()
    counts.ends(A)
    counts.ends(B)
    assert counts.tearing_down() == {A, B}
    counts.has_torn_down(A)
    counts.has_torn_down("worker c, which was not asked to")
    assert counts.tearing_down() == {B}
    counts.gone(B)
    assert counts.tearing_down() == frozenset()
