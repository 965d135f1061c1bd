"""The page in a real browser, with pipelines that run in this process."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.job.page.page_port import PagePort
from beam_spark_runner.options.page_address import PageAddress
from integration.page.conftest import NARROW, Opened
from integration.page.shown_pipelines import (
    Build,
    many_steps,
    orders,
    poisoned,
    started,
    words,
)
from tests.unit.job.page.observed import FixedJobs, stream

EVIL = "<script>alert(1)</script>"
SOON_MS = 20_000
# Functions, since the page's policy forbids to evaluate texts.
EPOCH_HAS_CHANGED = (
    "before => [...document.querySelectorAll('.tiles dt')].find(e => e.innerText === 'epoch')"
    ".nextElementSibling.innerText !== before"
)
GRAPH_HAS_CHANGED = "before => document.querySelector('#graph').innerHTML !== before"
HAS_NODES = "count => document.querySelectorAll('.node').length === count"
UNNAMED = """() => [...document.querySelectorAll(
    'a, button, input:not([type=hidden]), select'
)].filter(
    e => !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length))
).map(e => e.outerHTML)"""


@contextlib.contextmanager
def running(build: Build, *flags: str) -> Iterator[Any]:
    """Run a pipeline with a page, and cancel it at the end."""
    result = started(build, "--job_page_port=0", *flags)
    try:
        yield result
    finally:
        result.cancel()


def ended(build: Build, *flags: str) -> Any:
    """Run a pipeline to its end, or to its failure."""
    result = started(build, "--job_page_port=0", *flags)
    with contextlib.suppress(RunnerError, ValueError):
        result.wait_until_finish()
    return result


def overflow(page: Any) -> int:
    """Return by how many pixels the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


def sentence(page: Any) -> Any:
    return page.locator(".sentence .what")


def test_a_stream_updates_itself(opened: Opened) -> None:
    with running(orders(), "--job_name=orders") as result:
        page = opened(result.page_url)
        assert "token" not in page.url
        page.get_by_text("keeps up").or_(page.get_by_text("takes")).first.wait_for(timeout=SOON_MS)
        epoch = page.locator(".tiles dt", has_text="epoch").locator("xpath=following-sibling::dd")
        before = epoch.inner_text()
        page.wait_for_function(EPOCH_HAS_CHANGED, arg=before, timeout=SOON_MS)
        assert page.locator(".node").count() == 7
        assert page.locator(".bars rect").count() > 4
        assert "updated" in page.locator("#live").inner_text()


def test_what_a_viewer_has_opened_stays_open_and_focused(opened: Opened) -> None:
    with running(orders()) as result:
        page = opened(result.page_url)
        page.locator(".node .name", has_text="Convert").wait_for(timeout=SOON_MS)
        page.locator("#all-steps > summary").click()
        link = page.locator("#all-steps a", has_text="Convert")
        link.focus()
        before = page.locator("#graph").inner_html()
        page.wait_for_function(GRAPH_HAS_CHANGED, arg=before, timeout=SOON_MS)
        assert page.locator("#all-steps").get_attribute("open") is not None
        assert page.evaluate("document.activeElement.innerText") == "Convert"


def test_a_step_is_chosen_by_keyboard(opened: Opened) -> None:
    result = ended(words(50, 0.0))
    page = opened(result.page_url)
    page.locator(".node", has_text="Look up").locator("a").first.focus()
    page.keyboard.press("Enter")
    page.locator("aside h3", has_text="Look up").wait_for(timeout=SOON_MS)
    assert "step=Look+up" in page.url
    assert page.locator("aside dd").first.inner_text() == "50"
    page.keyboard.press("Escape")
    page.locator("aside").wait_for(state="detached", timeout=SOON_MS)
    page.go_back()
    page.locator("aside h3", has_text="Look up").wait_for(timeout=SOON_MS)


def test_composites_unfold_and_fold(opened: Opened) -> None:
    result = ended(words(50, 0.0))
    page = opened(result.page_url)
    assert page.locator(".node").count() == 5
    page.get_by_label("Unfold Count", exact=True).click()
    page.locator(".edge.exchange").first.wait_for(timeout=SOON_MS, state="attached")
    assert page.locator(".edge.exchange").count() == 1
    page.get_by_text("Fold all", exact=True).click()
    page.wait_for_function(HAS_NODES, arg=5, timeout=SOON_MS)


def test_a_poisonous_element_is_named(opened: Opened) -> None:
    result = ended(poisoned("Parse orders"))
    page = opened(result.page_url)
    text = sentence(page).inner_text()
    assert text == "It has failed in Parse orders: ValueError: order 123 has no <b>price</b>"
    assert "Element: 123" in page.locator("#errors pre").inner_text()
    assert page.locator(".node.failed .name").text_content() == "Parse orders"
    page.get_by_text("Show this step").click()
    page.locator("aside h3", has_text="Parse orders").wait_for(timeout=SOON_MS)


def test_a_source_that_holds_the_watermark_is_named(opened: Opened) -> None:
    with running(orders(late_s=200)) as result:
        page = opened(result.page_url)
        sentence(page).get_by_text("holds the watermark").wait_for(timeout=SOON_MS)
        assert (
            sentence(page).inner_text().startswith("Read orders/Process holds the watermark 3 min")
        )
        assert page.locator(".node.holding .name").text_content() == "Read orders"


def test_a_slow_step_is_named(opened: Opened) -> None:
    with running(words(100_000, 0.005)) as result:
        page = opened(result.page_url)
        sentence(page).get_by_text("of the time in which steps work").wait_for(timeout=SOON_MS)
        assert sentence(page).inner_text().startswith("Look up takes ")


def test_names_that_are_html_stay_text(opened: Opened) -> None:
    result = ended(poisoned(EVIL), f"--job_name={EVIL}")
    page = opened(result.page_url)
    assert page.locator("h1").inner_text() == EVIL
    assert EVIL in sentence(page).inner_text()
    page.locator(".node", has_text="script").locator("a").first.click()
    page.locator("aside h3", has_text=EVIL).wait_for(timeout=SOON_MS)
    # ``opened`` checks that nothing was executed.


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["", "?open=*&step=Count", "?step=Look+up"])
def test_it_fits_a_narrow_window(opened: Opened, scheme: str, path: str) -> None:
    result = ended(words(50, 0.0), "--job_name=" + "a_long_name_without_spaces" * 4)
    page = opened(result.page_url, NARROW, color_scheme=scheme)
    page.goto(page.url + path)
    assert overflow(page) == 0
    page.goto(page.url.partition("/jobs/")[0])
    assert overflow(page) == 0


def test_a_thousand_steps(opened: Opened) -> None:
    with running(many_steps(1_000)) as result:
        page = opened(result.page_url)
        page.locator(".node").first.wait_for(timeout=SOON_MS)
        assert page.locator(".node").count() == 101
        page.get_by_label("Unfold Part 7", exact=True).click()
        page.wait_for_function(HAS_NODES, arg=110, timeout=SOON_MS)


def test_the_job_is_cancelled_after_a_confirmation(opened: Opened) -> None:
    with running(orders(), "--job_name=orders") as result:
        page = opened(result.page_url)
        page.locator("#cancel > summary").click()
        page.get_by_role("button", name="Yes, cancel orders").click()
        page.get_by_text("is being cancelled").wait_for(timeout=SOON_MS)
        page.get_by_text("Back to the job").click()
        page.locator(".chip.cancelled").wait_for(timeout=SOON_MS)
        assert page.locator(".actions").count() == 0


def test_the_job_is_drained(opened: Opened) -> None:
    with running(orders()) as result:
        page = opened(result.page_url)
        page.locator("#drain > summary").click(timeout=SOON_MS)
        page.get_by_role("button", name=re.compile("Yes, drain")).click()
        page.get_by_text("Back to the job").click()
        page.locator(".chip.drained").wait_for(timeout=SOON_MS)


def test_a_read_only_page_has_no_actions(opened: Opened) -> None:
    with running(orders(), "--job_page_read_only") as result:
        page = opened(result.page_url)
        assert page.locator(".actions, form[method=post]").count() == 0


def test_log_lines_are_filtered(opened: Opened) -> None:
    page = opened(ended(poisoned()).page_url)
    assert page.locator("#log .lines li").count() >= 1
    page.locator(".levels a", has_text="error").click()
    page.locator(".levels a[aria-current]", has_text="error").wait_for(timeout=SOON_MS)
    page.locator("#find").fill("nothing like it")
    page.get_by_role("button", name="Find", exact=True).click()
    page.get_by_text("There are no such lines").wait_for(timeout=SOON_MS)


def test_a_lost_connection_is_said_and_found_again(opened: Opened) -> None:
    result = ended(words(50, 0.0))
    token = result.page_url.partition("token=")[2]
    page = opened(result.page_url)
    page.evaluate("document.querySelector('[data-every]').dataset.every = '0.2'")
    page.context.set_offline(True)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.locator("#live.lost").wait_for(timeout=SOON_MS)
    assert "connection lost" in page.locator("#live").inner_text()
    page.context.set_offline(False)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.locator("#live:not(.lost)").wait_for(timeout=SOON_MS)
    assert token not in page.content()


def test_fifty_jobs_are_listed_and_filtered(opened: Opened) -> None:
    class Shown:
        def __init__(self) -> None:
            self._jobs = FixedJobs(*(stream(str(number)) for number in range(50)))

        def all(self) -> Any:
            return [*self._jobs.jobs_by_id().values()]

        def spark_url(self) -> None:
            return None

    port = PagePort(PageAddress(0), Shown(), "Job server", None)
    try:
        page = opened(port.url)
        assert page.locator("table.jobs tbody tr").count() == 50
        page.get_by_placeholder("name, id or error").fill("49")
        page.get_by_role("button", name="Filter").click()
        assert page.locator("table.jobs tbody tr").count() == 1
        assert overflow(page) == 0
    finally:
        port.close()


def test_a_server_that_wants_its_token(opened: Opened) -> None:
    class Shown:
        def all(self) -> Any:
            return [*FixedJobs(stream("7")).jobs_by_id().values()]

        def spark_url(self) -> None:
            return None

    port = PagePort(PageAddress(0), Shown(), "Job server", "a token of some length")
    try:
        page = opened(f"{port.url}jobs/7")
        page.get_by_label("Token").fill("not this one")
        page.get_by_role("button", name="Open").click()
        page.get_by_text("This is not the token").wait_for(timeout=SOON_MS)
        page.get_by_label("Token").fill("a token of some length")
        page.get_by_role("button", name="Open").click()
        page.locator("#top h1").wait_for(timeout=SOON_MS)
        assert page.url == f"{port.url}jobs/7"
    finally:
        port.close()


def test_every_control_has_a_name(opened: Opened) -> None:
    """Screen readers say what each link, button and field is."""
    page = opened(ended(words(50, 0.0)).page_url)
    unnamed = page.evaluate(UNNAMED)
    assert unnamed == []
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.locator("main").count() == page.locator("h1").count() == 1
