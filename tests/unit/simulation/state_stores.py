"""The state store of the simulated world: it may lose anything, and answers late or not at all."""

import copy
from collections.abc import Callable, Collection
from random import Random

from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.state.remote.key_store import StateStoreError, Structure
from tests.unit.state.simulated_store import Group, SimulatedStore

ADDRESS = StateStoreAddress("simulated")
_SNAPSHOTS = 3
Place = tuple[str, int]


class StateStores:
    """One server. It has the groups of stages, by namespace and store number.

    Args:
        pause: lets the world decide what happens before a call is answered.
    """

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause = pause
        self._stores: dict[Place, SimulatedStore] = {}
        self._snapshots: list[dict[Place, dict[int, Group]]] = []
        self._claimed: set[str] = set()
        self._fails_after: int | None = None
        self._drawn = 0

    def key_store(self, address: StateStoreAddress, namespace: str, number: int) -> SimulatedStore:
        """Return the groups of a stage; it is ``key_stores.key_store`` of all tasks."""
        assert address == ADDRESS
        assert namespace
        place = namespace, number
        if place not in self._stores:
            self._stores[place] = SimulatedStore()
            self._stores[place].on_call = self._called
            self._stores[place].is_known = lambda: namespace in self._claimed
        return self._stores[place]

    def _called(self) -> None:
        self._pause()
        if self._fails_after is not None:
            self._fails_after -= 1
            if self._fails_after < 0:
                self._fails_after = None
                raise StateStoreError("the simulated store", "it does not answer")

    # What happens to it.

    def note_moment(self) -> None:
        """Note what it has, so that it may lose what comes later."""
        now = {place: copy.deepcopy(each.groups) for place, each in self._stores.items()}
        self._snapshots = [*self._snapshots, now][-_SNAPSHOTS:]

    def fail_after(self, calls: int) -> None:
        """Fail once, after some calls."""
        self._fails_after = calls

    def flush(self) -> None:
        """Lose everything, and that namespaces are claimed."""
        self._claimed.clear()
        for each in self._stores.values():
            each.groups.clear()
            each.installed.clear()

    def lose_last(self, random: Random) -> None:
        """Be as at an earlier moment: all of it, or the groups of some nodes."""
        if not self._snapshots:
            return
        earlier, is_cluster = random.choice(self._snapshots), random.random() < 0.5
        for place, each in self._stores.items():
            each.installed.clear()
            before = earlier.get(place, {})
            for number in [*each.groups]:
                if not is_cluster or random.random() < 0.5:
                    each.groups[number] = copy.deepcopy(before.get(number, Group()))

    def lose_a_structure(self, random: Random) -> None:
        """Lose all entries of one structure of a group."""
        groups = [group for each in self._stores.values() for group in each.groups.values()]
        if groups:
            random.choice(groups).entries[random.choice([*Structure])].clear()

    # See ``Namespaces``.

    def new(self) -> str:
        self._drawn += 1
        return f"namespace{self._drawn}"

    def claim(self, namespace: str) -> bool:
        self._claimed.add(namespace)
        return True  # there is one checkpoint folder

    def note(self, namespace: str, epoch: int) -> None:
        pass

    def drop(self, namespace: str, numbers: Collection[int]) -> None:
        for number in numbers:
            self._stores.pop((namespace, number), None)

    def forget(self, namespace: str) -> None:
        self._claimed.discard(namespace)

    def is_empty(self, namespace: str) -> bool:
        """Whether nothing is left in a namespace."""
        return not any(
            any(group.entries.values())
            for (of, _), each in self._stores.items()
            if of == namespace
            for group in each.groups.values()
        )
