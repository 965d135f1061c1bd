"""Heads of keys in a state store, when the number of partitions changes again and again."""

import json
import random

from beam_spark_runner.core.key_groups import groups_of
from beam_spark_runner.recovery.heads import (
    DeltaId,
    EarlierHead,
    Head,
    KeyedHead,
    coded_keyed_heads,
    keyed_heads_of,
    repartitioned,
)
from tests.examples import examples

KEY_GROUPS, STORE = 12, 3


def chains_of(head: KeyedHead, group: int) -> list[EarlierHead]:
    found = [part.chains for part in head.parts if part.first <= group < part.end]
    assert len(found) <= 1
    return list(found[0]) if found else []


def test_each_group_has_the_chains_that_its_partitions_have_written() -> None:
    for _ in range(examples(200)):
        drawn = random.Random(seed := random.randrange(1 << 32))
        written: dict[int, list[EarlierHead]] = {group: [] for group in range(KEY_GROUPS)}
        heads: dict[tuple[int, int], KeyedHead] = {(STORE + 1, 0): KeyedHead(None, ())}
        partitions, deltas = drawn.randint(1, KEY_GROUPS), 0
        for _ in range(6):
            for partition in range(partitions):
                if drawn.random() < 0.5:
                    continue
                deltas += 1
                older = (DeltaId(deltas, 1),) if drawn.random() < 0.5 else ()
                own = Head(DeltaId(deltas, 0), older)
                head = heads.get((STORE, partition), KeyedHead())
                groups = groups_of(partition, KEY_GROUPS, partitions)
                if drawn.random() < 0.3:  # the slices of its chain have gone through all groups
                    head = KeyedHead()
                    written |= {group: [] for group in groups}
                heads[STORE, partition] = KeyedHead(own, head.parts)
                for group in groups:
                    written[group].append(EarlierHead(partition, own))
            after = drawn.randint(1, KEY_GROUPS)
            heads = repartitioned(heads, STORE, partitions, after, KEY_GROUPS)
            if partitions == after:
                heads = {
                    place: KeyedHead(None, tuple(head.parts_in(place[1], groups)))
                    for place, head in heads.items()
                    if (groups := groups_of(place[1], KEY_GROUPS, after))
                }
            partitions = after
            for partition in range(partitions):
                head = heads.get((STORE, partition), KeyedHead())
                mine = groups_of(partition, KEY_GROUPS, partitions)
                for group in mine:
                    assert chains_of(head, group) == written[group], f"seed {seed}"
                firsts = [part.first for part in head.parts]
                assert firsts == sorted(firsts)
                assert all(part.first in mine and part.end - 1 in mine for part in head.parts)
            assert keyed_heads_of(json.loads(json.dumps(coded_keyed_heads(heads)))) == heads


def test_files_are_those_of_all_chains_once() -> None:
    own = Head(DeltaId(5, 1), (DeltaId(4, 1),))
    heads = {(STORE, 0): KeyedHead(own), (STORE, 1): KeyedHead(Head(DeltaId(4, 2)))}
    (only,) = repartitioned(heads, STORE, 2, 1, KEY_GROUPS).values()
    only = KeyedHead(Head(DeltaId(6, 3)), only.parts)
    files = list(only.files(0))
    assert sorted(files) == [
        (0, DeltaId(4, 1)),
        (0, DeltaId(5, 1)),
        (0, DeltaId(6, 3)),
        (1, DeltaId(4, 2)),
    ]
