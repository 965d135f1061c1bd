"""Faults that an operator sees on the page only: the sentence names the cause of each.

A poisonous element, the fifth one, is in ``test_job_page``.
"""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner import SparkPortableRunner
from integration.cluster import local_cluster, wait_for_executors
from integration.page import page_server
from integration.page.conftest import Opened
from integration.page.shown_pipelines import orders, skewed, sleeping, started
from integration.ports import free_ports

SOON_MS = 60_000


def sentence(page: Any) -> Any:
    return page.locator(".sentence .what")


def await_sentence(page: Any, words: str) -> str:
    """Wait until the sentence has some words, and return it."""
    sentence(page).get_by_text(words).wait_for(timeout=SOON_MS)
    return str(sentence(page).inner_text())


def remedy(page: Any) -> str:
    return str(page.locator(".sentence .remedy").first.inner_text())


def test_storage_that_is_gone_for_a_while(opened: Opened, tmp_path: Path) -> None:
    folder, away = tmp_path / "checkpoints", tmp_path / "away"
    result = started(orders(), "--job_page_port=0", f"--checkpoint_dir={folder}")
    try:
        page = opened(result.page_url)
        page.locator(".bars rect").first.wait_for(timeout=SOON_MS, state="attached")
        folder.rename(away)
        text = await_sentence(page, "Its storage has not worked for")
        assert str(folder) in text
        assert "is not full" in remedy(page)
        away.rename(folder)
        sentence(page).get_by_text("Its storage").wait_for(timeout=SOON_MS, state="detached")
        assert "running" in page.locator(".chip").first.inner_text()
        assert page.locator("#warnings li", has_text="trying again").count() == 1
    finally:
        if away.exists():
            away.rename(folder)
        result.cancel()


def test_a_key_that_most_elements_have(opened: Opened) -> None:
    result = started(skewed(), "--job_page_port=0")
    try:
        page = opened(result.page_url)
        text = await_sentence(page, "have the key")
        assert re.fullmatch(
            r"Group has waited \d+ s for partition \d: \d\d% of its [\d,]+ elements have the key "
            r"'Bonn'\.",
            text,
        )
        assert "CombinePerKey" in remedy(page)
        page.get_by_text("Show this step").click()
        page.locator("aside h3", has_text="Group").wait_for(timeout=SOON_MS)
        assert "'Bonn'" in page.locator("#tasks").inner_text()
    finally:
        result.cancel()


def test_an_executor_that_is_lost(opened: Opened) -> None:
    cluster = local_cluster()
    with cluster.session("page") as session:
        wait_for_executors(session)
        runner = SparkPortableRunner(spark=session)
        pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(["--job_page_port=0"]))
        _ = (
            pipeline
            | beam.Create(range(100_000))
            | beam.Reshuffle()
            | "Look up" >> beam.Map(sleeping(0.05))
        )
        result = pipeline.run()
        try:
            page = opened(result.page_url)
            step = page.locator(".node", has_text="Look up")
            step.get_by_text(" out · ").wait_for(timeout=2 * SOON_MS)
            cluster.kill_executor()
            text = await_sentence(page, "was lost")
            assert re.fullmatch(
                r"Executor \d+ was lost .* ago \(.*\): what ran there runs again\.", text
            )
            assert "137" in text
            assert "No element is lost" in remedy(page)
        finally:
            result.cancel()


@contextlib.contextmanager
def serving(folder: Path, port: int, *given: str) -> Iterator[subprocess.Popen[str]]:
    """Run a job server with a page until the context ends, which kills it."""
    command = [sys.executable, "-m", page_server.__name__, str(folder), str(port), *given]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert "http" in server.stdout.readline()
        yield server
    finally:
        server.kill()
        server.wait()


def test_a_server_that_is_killed_and_started_again(opened: Opened, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with serving(tmp_path, port, page_server.SUBMIT):
        page = opened(f"http://127.0.0.1:{port}/")
        page.locator("table.jobs a", has_text="nightly import").click()
        page.get_by_text("2 of 3").first.wait_for(timeout=SOON_MS)
        address = page.url
    page.locator("#live.lost").wait_for(timeout=SOON_MS)
    assert "connection lost at" in page.locator("#live").inner_text()
    with serving(tmp_path, port):
        text = await_sentence(page, "was started again")
        assert re.fullmatch(
            r"Its job server, or Spark, had ended: the job was started again .* ago, and "
            r"continues, after 2 of 3 Spark jobs\.",
            text,
        )
        assert page.url == address
        page.locator("#live:not(.lost)").wait_for(timeout=SOON_MS)
