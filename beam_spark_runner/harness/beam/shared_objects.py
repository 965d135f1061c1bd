"""Objects that a process shares with its siblings by Beam's ``MultiProcessShared``.

``RunInference`` with ``share_model_across_processes`` has its model there. The first process that
asks for an object hosts it for all processes of the machine: itself, or in a child process that
ends with it.

Source: ``apache_beam.utils.multi_process_shared``.
"""

import multiprocessing
import sys
from multiprocessing.context import SpawnProcess

_MODULE = "apache_beam.utils.multi_process_shared"


def hosts_shared_objects() -> bool:
    """Whether this process hosts objects that its siblings may use.

    A child process that was spawned counts as a host: which ones are is not known.
    """
    module = sys.modules.get(_MODULE)
    if module is None:
        return False
    if module._process_level_singleton_manager.entries:
        return True
    children = multiprocessing.active_children()
    return any(isinstance(child, SpawnProcess) and not child.daemon for child in children)
