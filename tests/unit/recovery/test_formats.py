"""Migrations of stored files, one after the other."""

import re

import pytest

from beam_spark_runner.recovery import formats
from beam_spark_runner.recovery.formats import EPOCHS, Formats
from tests.test_docs import ROOT

KINDS = {name: each for name, each in vars(formats).items() if isinstance(each, Formats)}


def test_there_are_kinds() -> None:
    assert KINDS.keys() == {"EPOCHS", "COMMITS", "SUBMISSIONS", "JOBS"}


@pytest.mark.parametrize("kind", KINDS)
def test_migrations_lead_from_each_format_to_the_newest(kind: str) -> None:
    read = KINDS[kind].read
    assert read == (*range(read[0], KINDS[kind].newest + 1),)


def test_the_page_lists_the_formats() -> None:
    text = (ROOT / "docs" / "checkpoints.md").read_text()
    after = text.partition("| files | format | read as well |\n")[2]
    table = after.partition("\n\n")[0]
    rows = re.findall(r"^\|[^|]*\| (\d+) \| (\d+)(?: to (\d+))? \|$", table, re.MULTILINE)
    listed = [
        (*range(int(first), int(last or first) + 1), int(newest)) for newest, first, last in rows
    ]
    assert listed == [each.read for each in KINDS.values()]


def test_a_manifest_of_the_oldest_format_gets_what_later_ones_have() -> None:
    fields: formats.Fields = {"epoch": 3}
    EPOCHS.migrate(fields, 9)
    assert fields == {
        "epoch": 3,
        "namespace": "",
        "stores": {},
        "next_store": 0,
        "keyed": [],
        "needs": {},
        "left_namespaces": [],
        "chain": "",
        "unwritten": [],
    }


def test_heads_of_keys_get_parts() -> None:
    fields: formats.Fields = {"keyed": [[2, 1, 5, 7, [[4, 6]]]]}
    EPOCHS.migrate(fields, 11)
    assert fields["keyed"] == [[2, 1, 5, 7, [[4, 6]], []]]


def test_the_newest_format_stays_as_it_is() -> None:
    fields: formats.Fields = {"keyed": [[2, 1, 5, 7, [], []]]}
    EPOCHS.migrate(fields, EPOCHS.newest)
    assert fields == {"keyed": [[2, 1, 5, 7, [], []]]}
