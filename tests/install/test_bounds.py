"""The versions that a plain install gets: the newest ones that are allowed."""

import configparser
import importlib.metadata
from collections.abc import Iterable

from packaging.requirements import Requirement

from tests.install.test_registration import ROOT


def _of_pandas(requirements: Iterable[str]) -> list[Requirement]:
    found = [Requirement(each) for each in requirements if each.strip() and each.strip()[0] != "#"]
    return [each for each in found if each.name == "pandas"]


def test_pandas_has_no_version_with_which_beams_data_frames_fail() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    (ours,) = _of_pandas(setup["options"]["install_requires"].splitlines())
    (bound,) = {
        each.version
        for requirement in _of_pandas(importlib.metadata.requires("apache-beam") or ())
        if requirement.marker is not None and requirement.marker.evaluate({"extra": "dataframe"})
        for each in requirement.specifier
        if each.operator == "<"
    }
    assert not ours.specifier.contains(bound)
    assert not ours.specifier.contains("3.0")
