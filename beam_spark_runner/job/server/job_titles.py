"""What the server's log shows of a job after its id. Clients choose the names of their jobs."""

from urllib.parse import unquote

_MAX_CHARACTERS = 60


def title_of(name: str, peer: str) -> str:
    """Return the name and the client of a job on one line, for people.

    Args:
        name: See ``short_name``.
        peer: The client's address, as gRPC writes it; may be empty.

    Example:
        "first" and "ipv4:127.0.0.1:41234"   ==>   "first" of 127.0.0.1
    """
    kind, _, address = peer.partition(":")
    host = unquote(address).rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else kind
    return " of ".join(filter(None, (f'"{name}"' if name else "", host)))


def short_name(name: str) -> str:
    """Return a name that cannot break or forge a line of the log."""
    if len(name) > _MAX_CHARACTERS:
        name = f"{name[:_MAX_CHARACTERS]}…"
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in name
    )
