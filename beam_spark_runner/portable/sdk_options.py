"""Pipeline options in the form that SDK harnesses receive."""

import json
from collections.abc import Mapping


def options_json(options: Mapping[str, object]) -> str:
    """Encode pipeline options as SDKs read them: integers as text, no values that JSON lacks."""
    kept = {}
    for name, value in sorted(options.items()):
        if type(value) is int:
            value = str(value)
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            continue
        if value is not None:
            kept[f"beam:option:{name}:v1"] = value
    return json.dumps(kept, sort_keys=True)
