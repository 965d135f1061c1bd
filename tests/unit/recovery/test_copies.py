"""How a group of keys in the state store is brought to the version of a checkpoint."""

import itertools

import pytest

from beam_spark_runner.recovery.copies import (
    Apply,
    GroupTag,
    KeyedHistory,
    Overtaken,
    Rebuild,
    Use,
    resolve,
)
from beam_spark_runner.recovery.heads import DeltaId

V1, V2, V3, V4, V5 = (DeltaId(epoch, 10 * epoch) for epoch in range(1, 6))
OTHER_5, OTHER_3, LATER = DeltaId(5, 99), DeltaId(3, 99), DeltaId(6, 60)
WHOLE = KeyedHistory((V1, V2, V3, V4, V5), None, (V2, V4, V5))
CUT = KeyedHistory((V1, V2, V3, V4, V5), V2, (V4, V5))  # slices have replaced what led to V2
OLD = KeyedHistory((V4, V5), V1, (V2, V5))  # older versions than the known ones


@pytest.mark.parametrize(
    ("tag", "history", "decision"),
    [
        (GroupTag(), KeyedHistory(), Use()),
        (GroupTag(is_whole=False), KeyedHistory(), Rebuild()),
        (GroupTag(V1), KeyedHistory(), Overtaken()),
        (GroupTag(V5), WHOLE, Use()),
        (GroupTag(V5, is_whole=False), WHOLE, Rebuild()),
        (GroupTag(V4), WHOLE, Apply((V5,), is_direct=True)),
        (GroupTag(V4, V5), WHOLE, Apply((V5,), is_direct=True)),
        (GroupTag(V3), WHOLE, Apply((V4, V5), is_direct=False)),
        (GroupTag(V1, V2), WHOLE, Apply((V2, V4, V5), is_direct=False)),
        (GroupTag(), WHOLE, Apply((V2, V4, V5), is_direct=False)),
        (GroupTag(), KeyedHistory((V5,), None, (V5,)), Apply((V5,), is_direct=True)),
        (GroupTag(V2), CUT, Apply((V4, V5), is_direct=False)),
        (GroupTag(V1), CUT, Rebuild()),
        (GroupTag(), CUT, Rebuild()),
        (GroupTag(V4), OLD, Apply((V5,), is_direct=True)),
        (GroupTag(V2), OLD, Rebuild()),  # it is too old to be known
        (GroupTag(OTHER_3), WHOLE, Rebuild()),
        (GroupTag(V3, OTHER_3), WHOLE, Apply((V4, V5), is_direct=False)),
        (GroupTag(OTHER_5), WHOLE, Overtaken()),
        (GroupTag(LATER), WHOLE, Overtaken()),
        (GroupTag(V5, LATER), WHOLE, Overtaken()),
        (GroupTag(V4, OTHER_5), WHOLE, Overtaken()),
        (GroupTag(LATER, is_whole=False), WHOLE, Overtaken()),
    ],
)
def test_decisions(tag: GroupTag, history: KeyedHistory, decision: object) -> None:
    assert resolve(tag, history) == decision


def test_each_pair_has_a_decision() -> None:
    versions = (None, V1, V2, V3, V4, V5, OTHER_3, OTHER_5, LATER)
    for complete, applying, is_whole in itertools.product(versions, versions, (True, False)):
        for history in (KeyedHistory(), WHOLE, CUT, OLD):
            decision = resolve(GroupTag(complete, applying, is_whole), history)
            if isinstance(decision, Use):
                assert complete == history.head
            if isinstance(decision, Apply):
                assert decision.versions[-1] == history.head
                assert complete not in decision.versions
