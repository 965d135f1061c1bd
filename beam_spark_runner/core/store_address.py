"""Where a state store is, and how tasks get access to it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateStoreAddress:
    """The address of a state store.

    Attributes:
        url: Without a password, since it is shown to users.
        password_file: A file on all machines that has the password. None: there is no password.
    """

    url: str
    password_file: str | None = None
