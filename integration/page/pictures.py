"""Makes the pictures of docs/job_page.md: ``make page-pictures``."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from beam_spark_runner.core.errors import RunnerError
from integration.page.shown_pipelines import orders, poisoned, started, words

_FOLDER = Path(__file__).parents[2] / "docs" / "images"
_MAX_BYTES = 150_000
_SIZE: Any = {"width": 1200, "height": 860}
_WAIT_MS = 30_000


def main() -> None:
    """Write one picture of a job and one of the list, each smaller than 150 kB."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    late = started(orders(late_s=200), "--job_page_port=0", "--job_name=orders")
    counted = started(words(500), "--job_page_port=0", "--job_name=count words")
    failed = started(poisoned("Parse orders"), "--job_page_port=0", "--job_name=nightly import")
    keeping = started(orders(), "--job_page_port=0", "--job_name=orders today")
    for each in (counted, failed):
        with contextlib.suppress(RunnerError, ValueError):
            each.wait_until_finish()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            page = browser.new_page(viewport=_SIZE)
            page.goto(late.page_url)
            page.locator(".sentence .what", has_text="holds the watermark").wait_for(
                timeout=2 * _WAIT_MS
            )
            page.wait_for_timeout(_WAIT_MS)  # for a line of throughput, and some epochs
            page.locator(".node", has_text="Read orders").locator("a").first.click()
            page.locator("aside h3").wait_for()
            page.evaluate("() => window.scrollTo(0, 0)")
            _write("job_page.png", page.screenshot())
            page.emulate_media(color_scheme="dark")
            page.set_viewport_size({"width": 1200, "height": 460})
            page.goto(late.page_url.partition("/jobs/")[0])
            _write("job_page_list.png", page.screenshot())
            browser.close()
    finally:
        late.cancel()
        keeping.cancel()


def _write(name: str, picture: bytes) -> None:
    assert len(picture) <= _MAX_BYTES, f"{name} has {len(picture)} bytes"
    (_FOLDER / name).write_bytes(picture)


if __name__ == "__main__":
    main()
