"""The table of extras, and the extras that there are."""

import configparser
import re

from packaging.requirements import Requirement

from tests.install.test_registration import ROOT

# For those who work on this package, from a checkout.
OF_DEVELOPERS = {"conformance", "dev", "integration", "page-test", "test", "yarn-test"}


def test_the_table_has_each_extra_with_what_it_installs() -> None:
    text = (ROOT / "docs" / "packages.md").read_text()
    table = text.partition("\n## Extras of this package\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE))
    listed = {extra: set(re.findall(r"`(.*?)`", names)) for extra, names in rows.items()}
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    declared = {
        extra: {_without_version(line) for line in lines.split("\n") if line.strip("# ")}
        for extra, lines in setup["options.extras_require"].items()
        if extra not in OF_DEVELOPERS
    }
    assert listed == declared


def test_pages_name_no_other_extras() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    named = {
        extra
        for page in pages
        for extras in re.findall(r"(?:beam-spark-runner|['\s]\.)\[([\w,]+)\]", page.read_text())
        for extra in extras.split(",")
    }
    assert "kafka" in named
    assert named <= {*setup["options.extras_require"]}


def _without_version(line: str) -> str:
    requirement = Requirement(line)
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return requirement.name + extras
