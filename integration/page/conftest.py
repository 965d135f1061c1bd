"""A headless Chromium, and pages in it."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from beam_spark_runner.job.page.program_page import close_pages

sync_api = pytest.importorskip("playwright.sync_api", reason="make page-test installs it")

WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 400, "height": 800}
Opened = Callable[..., Any]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for all tests: the system's, or that of CHROMIUM."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_api.sync_playwright() as playwright:
        # The sandbox needs namespaces, which containers do not have.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any) -> Iterator[Opened]:
    """Return a function that opens an address; nothing may go wrong in the page's scripts."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def dismiss(dialog: Any) -> None:
        wrong.append(dialog.message)
        dialog.dismiss()

    def note(line: Any) -> None:
        if "Content Security" in line.text:
            wrong.append(line.text)

    def open_(url: str, size: dict[str, int] = WIDE, **settings: Any) -> Any:
        context = chromium.new_context(viewport=size, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", dismiss)
        page.on("console", note)
        page.goto(url)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(autouse=True)
def no_page_stays() -> Iterator[None]:
    """Close the pages that a test has opened."""
    yield
    close_pages()
