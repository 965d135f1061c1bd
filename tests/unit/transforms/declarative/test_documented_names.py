"""The page of declarative steps has all that users may use."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner.transforms import declarative

DOCS = Path(__file__).parents[4] / "docs"
PAGE = (DOCS / "transforms.md").read_text().partition("## Declarative keyed steps")[2]


def public_methods(of: Any) -> Iterator[str]:
    """Yield the methods and properties of a class that this package defines, not Beam."""
    for name in dir(of):
        owners = [each for each in of.__mro__ if name in vars(each)]
        is_ours = all(each.__module__.startswith(declarative.__name__) for each in owners)
        attribute = vars(owners[0])[name]
        if (
            is_ours
            and not name.startswith("_")
            and (callable(attribute) or hasattr(attribute, "fget"))
        ):
            yield name


@pytest.mark.parametrize("name", declarative.__all__)
def test_the_page_has_each_class_with_its_methods(name: str) -> None:
    coded = " ".join(re.findall(r"`[^`]+`|^```.*?^```", PAGE, re.DOTALL | re.MULTILINE))
    found = set(re.findall(r"\w+", coded))
    missing = {name, *public_methods(getattr(declarative, name))} - found
    assert not missing
