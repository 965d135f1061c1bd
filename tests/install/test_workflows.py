"""Workflows of GitHub name what there is; ``make package-test`` lets actionlint check the rest."""

import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.install.test_registration import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_there_are_workflows() -> None:
    assert {each.stem for each in WORKFLOWS} == {"ci", "package", "release"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_targets_exist(path: Path) -> None:
    targets = set(
        re.findall(r"^([a-z0-9.-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )
    for words in re.findall(r"run: make (.*)", path.read_text()):
        assert {word for word in words.split() if "=" not in word} <= targets


def test_every_supported_python_is_tried_before_a_release() -> None:
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    classified = re.findall(r"Python :: (3\.\d+)", (ROOT / "setup.cfg").read_text())
    assert release["jobs"]["test"]["strategy"]["matrix"]["python"] == classified


def test_only_the_publishing_job_gets_an_identity() -> None:
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    assert release["permissions"] == {"contents": "read"}
    with_identity = {name for name, job in release["jobs"].items() if "permissions" in job}
    assert with_identity == {"publish"}
    assert set(release["jobs"]["publish"]["needs"]) == {"test", "package"}
