"""A start claims a namespace of the state store once a manifest names it, so that none is lost."""

import dataclasses
from collections.abc import Collection

from beam_spark_runner.recovery.driver_start import DriverStart
from tests.unit.recovery.drivers import start
from tests.unit.recovery.files import Files


class Folder:
    """The namespaces of a checkpoint in this folder; see ``copies.Namespaces``.

    Attributes:
        owners: the folders of namespaces.
        folder: that of the checkpoint.
        dropped: the namespaces and store numbers of what was removed.
    """

    def __init__(self, folder: str = "/folder", owners: dict[str, str] | None = None) -> None:
        self.folder, self.owners = folder, {} if owners is None else owners
        self.drawn = 0
        self.dropped: list[tuple[str, int]] = []

    def new(self) -> str:
        self.drawn += 1
        return f"{self.folder} {self.drawn}"

    def claim(self, namespace: str) -> bool:
        return self.owners.setdefault(namespace, self.folder) == self.folder

    def note(self, namespace: str, epoch: int) -> None:
        assert namespace in self.owners

    def drop(self, namespace: str, numbers: Collection[int]) -> None:
        assert self.owners[namespace] == self.folder
        self.dropped += [(namespace, number) for number in numbers]

    def forget(self, namespace: str) -> None:
        self.owners.pop(namespace, None)


def started(files: Files, namespaces: Folder) -> DriverStart:
    driver = start(files, namespaces=namespaces)
    own = driver.in_own_namespace()
    if own is not None:
        driver.commit(own)
    driver.remove_left_namespaces()
    return driver


def commit(driver: DriverStart) -> None:
    last = driver.manifest
    driver.commit(dataclasses.replace(last, epoch=last.epoch + 1, parent=last.epoch))
    driver.sweep()


def test_starts_that_commit_nothing_claim_nothing() -> None:
    files, namespaces = Files(), Folder()
    for _ in range(3):
        driver = started(files, namespaces)
        assert not namespaces.owners
    commit(driver)
    assert namespaces.owners == {driver.manifest.namespace: "/folder"}
    later = started(files, namespaces)
    assert later.manifest.namespace == driver.manifest.namespace
    commit(later)
    assert len(namespaces.owners) == 1


def test_what_the_store_has_lost_is_claimed_again() -> None:
    files, namespaces = Files(), Folder()
    driver = started(files, namespaces)
    driver.claim_again()
    assert not namespaces.owners  # nothing is committed
    commit(driver)
    namespaces.owners.clear()
    driver.claim_again()
    assert namespaces.owners == {driver.manifest.namespace: "/folder"}


def test_a_copy_claims_its_namespace_once_it_is_committed() -> None:
    files, namespaces = Files(), Folder()
    commit(started(files, namespaces))
    copy, copies = Files(), Folder("/copy", namespaces.owners)
    copy.files = dict(files.files)
    before = dict(namespaces.owners)
    assert start(copy, namespaces=copies).in_own_namespace() is not None
    assert namespaces.owners == before  # it has died before it has committed that
    driver = started(copy, copies)
    assert namespaces.owners == {**before, driver.manifest.namespace: "/copy"}


def test_a_driver_that_dies_while_it_leaves_a_namespace_leaves_nothing_there() -> None:
    """The next start removes it, and another namespace that this one has to leave at once."""
    files, namespaces = Files(), Folder()
    driver = started(files, namespaces)
    commit(driver)
    first = driver.manifest.namespace
    driver.commit(driver.in_new_namespace())  # it dies
    driver = start(files, namespaces=namespaces)
    second = driver.manifest.namespace
    assert set(namespaces.owners) == {first, second}
    driver.commit(driver.in_new_namespace())  # and so does the next one
    driver = started(files, namespaces)
    assert set(namespaces.owners) == {driver.manifest.namespace}
    assert namespaces.dropped == [(first, 0), (second, 0)]
    commit(driver)
    assert driver.manifest.left_namespaces == ()
    started(files, namespaces)
    assert len(namespaces.dropped) == 2


def test_a_copy_does_not_remove_what_the_original_has_left() -> None:
    files, namespaces = Files(), Folder()
    driver = started(files, namespaces)
    commit(driver)
    driver.commit(driver.in_new_namespace())  # it dies
    copy, copies = Files(), Folder("/copy", namespaces.owners)
    copy.files = dict(files.files)
    before = dict(namespaces.owners)
    driver = started(copy, copies)
    assert namespaces.owners == {**before, driver.manifest.namespace: "/copy"}
    commit(driver)
    assert driver.manifest.left_namespaces == ()
