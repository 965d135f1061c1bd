"""A streaming pipeline as a Deployment, whose executors are pods: each word is counted once."""

from collections.abc import Callable

import pytest

from integration.arriving_words import ArrivingWords
from integration.kubernetes.kubectl import wait_for
from integration.kubernetes.pod_images import PROGRAM
from integration.kubernetes.releases import Release
from integration.kubernetes.restrictions_of_pods import check_inside, check_pods
from integration.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
COUNTS_WITHIN_S = 900.0


def test_it_continues_when_pods_are_deleted_and_values_change(
    release: Callable[[str], Release],
) -> None:
    made = release("orders")
    stream = ArrivingWords(made.folder("words"), made.folder("counts"))
    made.install(
        {
            "jobServer": {"enabled": False},
            "pipeline": {
                "enabled": True,
                "image": PROGRAM,
                "command": ["python", "/opt/word_counts.py", *stream.flags],
            },
        }
    )

    def count(why: str) -> None:
        stream.add()
        wait_until(stream.are_counted, f"words after {why}", COUNTS_WITHIN_S, 0.5)

    count("the start")
    check_pods(made.kubectl)
    for pod in wait_for(made.kubectl, "executor", 2):
        check_inside(made.kubectl, pod)
    for component in ("executor", "pipeline"):
        pods = made.kubectl.pods(component)
        deleted = next(iter(pods))
        made.kubectl.run("delete", "pod", pods[deleted]["metadata"]["name"])
        count(f"a lost {component}")
        assert deleted not in made.kubectl.pods(component)
    made.upgrade({"executors": {"instances": 1}})
    count("an upgrade")
    wait_for(made.kubectl, "executor", 1)
    check_pods(made.kubectl)
    stream.check()
    made.remove()
    assert made.kubectl.objects("persistentvolumeclaims")
