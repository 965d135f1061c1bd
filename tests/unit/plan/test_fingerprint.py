"""Plans with one fingerprint are equal, in whatever process they were compiled."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner.graph import passes
from beam_spark_runner.graph.resources import Resources
from beam_spark_runner.plan import fingerprint as module
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.fingerprint import fingerprint
from beam_spark_runner.plan.model import Plan, Stored
from tests.golden.notation import parse

TEXT = """
    Start: impulse() -> start
    Table: pardo(start) -> table @py
    Read: pardo(start, table as iterable) -> pairs @py restriction=range
    Group: group_by_key(pairs) -> groups
    Use: pardo(groups) -> used @py
    pairs :: kv<bytes,bytes>, fixed at=latest
    groups :: kv<bytes,iterable<bytes>>, fixed at=latest
"""
ANOTHER_PROCESS = """
from beam_spark_runner.plan.fingerprint import fingerprint
from tests.unit.plan.test_fingerprint import plan
print(fingerprint(plan()))
"""


def plan() -> Plan:
    return build(passes.run_passes(parse(TEXT), passes.BATCH))


def values_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name of each field of ``value``, and a copy in which only that field differs."""
    if isinstance(value, bool):
        yield path, not value
    elif isinstance(value, int):
        yield path, value + 1_000
    elif isinstance(value, str):
        yield path, f"{value}!"
    elif isinstance(value, bytes):
        yield path, value + b"!"
    elif isinstance(value, tuple):
        if value:
            yield f"{path}[:-1]", value[:-1]
        for index, each in enumerate(value):
            for name, other in values_of(each, f"{path}[{index}]"):
                yield name, (*value[:index], other, *value[index + 1 :])
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield f"{path} without {key}", {k: v for k, v in value.items() if k != key}
            for name, other in values_of(each, f"{path}[{key}]"):
                yield name, {**value, key: other}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in (each for each in dataclasses.fields(value) if each.compare):
            for name, other in values_of(getattr(value, field.name), f"{path}.{field.name}"):
                yield name, dataclasses.replace(value, **{field.name: other})


def test_every_field_counts() -> None:
    first = plan()
    found: dict[str, str] = {fingerprint(first): "the plan itself"}
    for name, other in values_of(first):
        assert fingerprint(other) not in found, (name, found[fingerprint(other)])
        found[fingerprint(other)] = name
    assert len(found) > 200


def test_the_order_of_mappings_does_not_count() -> None:
    first = plan()
    stages = dict(reversed(list(first.stages.items())))
    assert fingerprint(dataclasses.replace(first, stages=stages)) == fingerprint(first)


def test_what_is_derived_from_the_rest_does_not_count() -> None:
    first = plan()
    stages = {
        id_: dataclasses.replace(stage, stores=frozenset(Stored))
        for id_, stage in first.stages.items()
    }
    other = dataclasses.replace(first, stages=stages)
    assert other == first
    assert fingerprint(other) == fingerprint(first)


def test_resource_hints_do_not_count() -> None:
    """They change no result: a job continues with other hints."""
    first = plan()
    transforms = {
        id_: dataclasses.replace(transform, resources=Resources(cpus=2))
        for id_, transform in first.graph.transforms.items()
    }
    graph = dataclasses.replace(first.graph, transforms=transforms)
    assert fingerprint(dataclasses.replace(first, graph=graph)) == fingerprint(first)


def test_another_version_of_this_package_has_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(plan())
    monkeypatch.setattr(module, "VERSION", "another")
    assert fingerprint(plan()) != before


@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_finds_the_same(seed: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ANOTHER_PROCESS],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONHASHSEED": seed},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == [fingerprint(plan())]


def test_what_is_no_part_of_a_plan_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no place in a plan"):
        fingerprint(dataclasses.replace(plan(), graph=object()))  # type: ignore[arg-type]
