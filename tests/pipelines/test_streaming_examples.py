"""The examples of streaming pipelines: files arrive, results come, and they drain."""

import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "streaming"
_TIMEOUT_S = 120.0


class Example:
    """One of them, while it runs."""

    def __init__(self, name: str, folder: Path, *flags: str) -> None:
        self.folder = folder
        self._in, self._count = folder / "in", 0
        self._in.mkdir()
        spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.result = module.start(
            [
                f"--input={self._in}/*.txt",
                f"--output={folder}/out/part",
                "--runner=SparkPortableRunner",
                f"--checkpoint_dir={folder}/checkpoints",
                "--batch_interval_millis=100",
                *flags,
            ]
        )

    def add(self, *lines: Any) -> None:
        """Have a file with lines arrive; what is no text becomes JSON."""
        self._count += 1
        hidden = self.folder / "arriving"
        texts = [each if isinstance(each, str) else json.dumps(each) for each in lines]
        hidden.write_text("\n".join(texts))
        hidden.rename(self._in / f"{self._count}.txt")

    def wait_until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not holds():
            if self.result.state != "RUNNING":
                self.result.wait_until_finish()  # which raises its error
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def lines(self, folder: str = "out") -> list[str]:
        """Return what is written so far."""
        paths = (self.folder / folder).glob("part*")
        return sorted(line for path in paths for line in path.read_text().splitlines())

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]

    def drain(self) -> None:
        self.result.drain()
        assert self.result.wait_until_finish() == "DRAINED"


@pytest.fixture
def run(
    spark_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Example]]:
    """Starts an example on the session of all tests; ends it after the test."""
    started = []
    monkeypatch.chdir(tmp_path)

    def start(name: str, *flags: str) -> Example:
        started.append(Example(name, tmp_path, *flags))
        return started[-1]

    yield start
    for each in started:
        each.result.cancel()


def test_word_counts(run: Callable[..., Example]) -> None:
    example = run("word_counts", "--window=1")
    example.add("To be, or not to be")
    example.wait_until(lambda: example.lines() == ["be 2", "not 1", "or 1", "to 2"])
    example.add("to")
    example.wait_until(lambda: "to 1" in example.lines())
    example.drain()
    assert example.lines() == ["be 2", "not 1", "or 1", "to 1", "to 2"]


def test_sessions(run: Callable[..., Example]) -> None:
    example = run("sessions", "--gap=1", "--window=1")
    first = [{"user": "ann", "page": "/b"}, {"user": "bob", "page": "/c"}]
    example.add(*first, {"user": "ann", "page": "/a"})
    example.wait_until(lambda: len(example.lines()) == 2)
    example.add({"user": "ann", "page": "/later"})
    example.wait_until(lambda: len(example.lines()) == 3)
    example.drain()
    pages = [(each["user"], each["pages"]) for each in example.records()]
    assert sorted(pages) == [("ann", ["/a", "/b"]), ("ann", ["/later"]), ("bob", ["/c"])]


def test_enrichment(run: Callable[..., Example], tmp_path: Path) -> None:
    rates = tmp_path / "rates.json"
    rates.write_text(json.dumps({"USD": 0.5}))
    example = run("enrichment", f"--rates={rates}", "--refresh=1", "--window=1")
    example.add({"id": 1, "amount": 10, "currency": "USD"})
    example.wait_until(lambda: len(example.lines()) == 1)
    hidden = tmp_path / "rates"
    hidden.write_text(json.dumps({"USD": 0.75}))
    hidden.rename(rates)
    number = 1

    def has_new_rate() -> bool:
        nonlocal number
        if len(example.lines()) == number:
            number += 1
            example.add({"id": number, "amount": 10, "currency": "USD"})
        return any(each["value"] == 7.5 for each in example.records())

    example.wait_until(has_new_rate)
    example.wait_until(lambda: len(example.lines()) == number)
    example.drain()
    records = sorted(example.records(), key=lambda each: int(each["id"]))
    assert [each["id"] for each in records] == [*range(1, number + 1)]
    values = [each["value"] for each in records]
    assert values[0] == 5.0
    assert set(values) == {5.0, 7.5}
    assert values == sorted(values)


def test_deduplication(run: Callable[..., Example]) -> None:
    example = run("deduplication", "--window=1")
    example.add({"id": "a", "text": "first"}, {"id": "b", "text": "first"})
    example.wait_until(lambda: len(example.lines()) == 2)
    example.add({"id": "a", "text": "second"}, {"id": "c", "text": "first"})
    example.wait_until(lambda: len(example.lines()) == 3)
    example.drain()
    expected = [{"id": each, "text": "first"} for each in "abc"]
    assert example.records() == expected


def test_dead_letters(run: Callable[..., Example], tmp_path: Path) -> None:
    example = run("dead_letters", f"--dead_letters={tmp_path}/dead/part", "--window=1")
    example.add({"item": "tea", "price": 4}, "no JSON", {"item": "tea", "price": 2.5})
    example.wait_until(lambda: bool(example.lines() and example.lines("dead")))
    example.add({"item": "tea", "price": "much"})
    example.wait_until(lambda: len(example.lines("dead")) == 2)
    example.drain()
    assert example.lines() == ["tea 6.5"]
    letters = [json.loads(line) for line in example.lines("dead")]
    assert [each["line"] for each in letters] == ["no JSON", '{"item": "tea", "price": "much"}']
    assert "could not convert string to float" in letters[1]["error"]


def test_fraud(run: Callable[..., Example]) -> None:
    example = run("fraud", "--most=2", "--within=600", "--window=1")
    card = {"card": "c1", "amount": 10}
    example.add(card, card, {"card": "c2", "amount": 1})
    example.add(card, card)
    example.wait_until(lambda: bool(example.lines()))
    example.drain()
    (alert,) = example.records()
    assert (alert["card"], alert["payments"], alert["total"]) == ("c1", 3, 30)


def test_new_ids(run: Callable[..., Example]) -> None:
    example = run("new_ids", "--window=1")
    example.add({"tenant": "t", "id": "a"}, {"tenant": "t", "id": "a"}, {"tenant": "u", "id": "a"})
    example.wait_until(lambda: example.lines() == ["t a 1", "u a 1"])
    example.add({"tenant": "t", "id": "a"}, {"tenant": "t", "id": "b"})
    example.wait_until(lambda: len(example.lines()) == 3)
    example.drain()
    assert example.lines() == ["t a 1", "t b 2", "u a 1"]


def test_late_join(run: Callable[..., Example], tmp_path: Path) -> None:
    example = run("late_join", f"--unpriced={tmp_path}/unpriced/part", "--window=1")
    shop = {"shop": "north"}
    order = {**shop, "customer": "ann", "currency": "USD"}
    example.add(
        {**shop, "kind": "discount", "of": "ann", "value": 0.5},
        {**shop, "kind": "price", "of": "tea", "value": 4},
    )
    example.add({**order, "order": 1, "item": "milk"}, {**order, "order": 2, "item": "salt"})
    example.add({**order, "order": 3, "item": "tea"})
    example.wait_until(lambda: len(example.lines()) == 1)
    example.add({**shop, "kind": "rate", "of": "USD", "value": 0.5})
    example.add({**shop, "kind": "price", "of": "milk", "value": 8})
    example.wait_until(lambda: len(example.lines()) == 2)
    example.drain()
    milk, tea = sorted(example.records(), key=lambda each: int(each["order"]))
    assert (milk["order"], tea["order"], tea["price"]) == (1, 3, 2.0)
    assert milk["price"] in (2.0, 4.0)  # the files may arrive in another order
    (left,) = example.lines("unpriced")
    assert json.loads(left) == {**order, "order": 2, "item": "salt"}
