"""Names of Beam's that source code uses."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def resolve(dotted: str) -> Any:
    """Import a dotted name, be it of a module or of something in one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(dotted)


def beam_names(file: Path) -> Iterator[str]:
    """All names of Beam's that a file imports, and the attributes that it reads from them."""
    tree = ast.parse(file.read_text())
    local: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("apache_beam"):
            local |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.name.split(".")[0] == "apache_beam":
                    local[each.asname or "apache_beam"] = (
                        each.name if each.asname else "apache_beam"
                    )
                    yield each.name
    yield from local.values()
    # Attributes of instances are out of reach; those of modules and classes are read by name.
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            chain = [node.attr]
            value = node.value
            while isinstance(value, ast.Attribute):
                chain.append(value.attr)
                value = value.value
            if isinstance(value, ast.Name) and value.id in local:
                yield ".".join([local[value.id], *reversed(chain)])
