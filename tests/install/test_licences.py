"""Which licences of dependencies are permitted, and the page that lists them."""

import re

import pytest

from integration.licences import PAGE, is_permitted, page, refused


@pytest.mark.parametrize(
    ("licence", "permitted"),
    [
        ("MIT", True),
        ("MIT AND PSF-2.0", True),
        ("Apache Software License; BSD License", True),
        ("GPL-3.0-or-later OR Apache-2.0", True),
        ("(MIT OR GPL-2.0-only)", True),
        ("MIT AND GPL-3.0-only", False),
        ("MIT License; GNU Lesser General Public License v3 (LGPLv3)", False),
        ("GNU Affero General Public License v3", False),
        ("UNKNOWN", False),
        ("", False),
    ],
)
def test_permitted(licence: str, *, permitted: bool) -> None:
    assert is_permitted(licence) == permitted


def test_the_page_lists_permitted_licences_of_direct_dependencies_too() -> None:
    text = PAGE.read_text()
    listed = dict(re.findall(r"^\| ([\w.-]+) \| (.*) \|$", text, re.MULTILINE)[2:])
    assert {"apache-beam", "pyspark", "confluent-kafka", "redis", "boto3"} <= listed.keys()
    assert not refused(listed)
    extras = re.findall(r"beam-spark-runner\[([\w,]+)\]", text)
    assert text == page(listed, extras[0])
