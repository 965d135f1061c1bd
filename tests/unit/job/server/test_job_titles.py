"""What the server's log shows of a job next to its id."""

import pytest

from beam_spark_runner.job.server.job_titles import short_name, title_of


@pytest.mark.parametrize(
    ("name", "peer", "title"),
    [
        ("first", "ipv4:127.0.0.1:41234", '"first" of 127.0.0.1'),
        ("first", "ipv6:%5B::1%5D:41234", '"first" of ::1'),
        ("first", "unix:", '"first" of unix'),
        ("", "ipv4:10.0.0.7:1", "10.0.0.7"),
        ("first", "", '"first"'),
        ("", "", ""),
    ],
)
def test_a_title_has_the_name_and_the_client(name: str, peer: str, title: str) -> None:
    assert title_of(name, peer) == title


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("größer 100%", "größer 100%"),
        ("a\nERROR forged\x1b[2K\u2028\u202e", "a\\nERROR forged\\x1b[2K\\u2028\\u202e"),
        ("x" * 1_000, "x" * 60 + "…"),
    ],
)
def test_names_do_not_break_lines(name: str, shown: str) -> None:
    assert short_name(name) == shown
