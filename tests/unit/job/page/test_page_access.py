"""Requests that browsers, programs and strangers send to the page."""

import pytest

from beam_spark_runner.job.page.page_access import PageAccess
from beam_spark_runner.job.page.page_query import EVERYTHING, PageQuery

TOKEN = "a token of some length"


def access(token: str | None) -> PageAccess:
    return PageAccess(token, "127.0.0.1", 8080, is_read_only=False)


@pytest.mark.parametrize("other", ['foo={"a":1}', "theme=dark mode", "a b=1", "=", ";;"])
def test_cookies_of_other_programs_of_this_machine_do_no_harm(other: str) -> None:
    page = access(TOKEN)
    nonce, value = page.new_cookie()
    for header in (
        f"{other}; {page.cookie_name}={value}",
        f"{page.cookie_name}={value}; {other}",
    ):
        assert page.viewer(header, "").nonce == nonce


def test_a_program_may_send_a_token_that_is_not_needed() -> None:
    assert access(None).viewer("", f"Bearer {TOKEN}").may_see
    assert access(TOKEN).viewer("", f"bearer {TOKEN}").may_see
    assert not access(TOKEN).viewer("", "Bearer another").may_see
    assert not access(TOKEN).viewer("", f"Basic {TOKEN}").may_see


@pytest.mark.parametrize("origin", ["http://[", "null", "http://evil.example"])
def test_other_origins_are_not_the_page(origin: str) -> None:
    assert not access(None).is_own_origin(origin, "127.0.0.1:8080")


def test_a_query_is_limited() -> None:
    many = [("open", f"step {number}") for number in range(2_000)]
    query = PageQuery.from_pairs("7", [*many, ("open", "x" * 5_000), ("step", "y" * 5_000)])
    assert len(query.unfolded) == 50
    assert len(query.href()) < 3_000
    assert PageQuery.from_pairs("7", [("open", EVERYTHING)]).unfolded == (EVERYTHING,)
