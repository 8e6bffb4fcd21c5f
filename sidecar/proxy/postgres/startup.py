"""Reads the parameters of an agent's startup message: what is harmless goes on to the server, what
says for whom the session is ends here, and everything else is refused."""

from collections.abc import Mapping
from typing import NamedTuple

from policies.ground.errors import Malformed
from sidecar.protocols.postgres.parameters import Setting, read_options, refusal


class SessionStart(NamedTuple):
    """What an agent's startup message says, but for its user, which attributes nothing."""

    database: str
    """The database; empty if it names none."""
    settings: tuple[Setting, ...]
    """The parameters of the session."""

    @property
    def for_server(self) -> dict[str, str]:
        """The parameters that go on to the server."""
        return {
            each.name: each.value
            for each in self.settings
            if each.attributes is None and each.value is not None
        }


def read_start(parameters: Mapping[bytes, bytes], limits: Mapping[str, int]) -> SessionStart:
    """Return what a startup message says. Raises `Malformed` for a parameter that an agent may not
    set. `limits` has the highest value of each timeout, in milliseconds."""
    try:
        given = {name.decode().lower(): value.decode() for name, value in parameters.items()}
    except UnicodeDecodeError:
        raise Malformed("a parameter of the startup message is not UTF-8") from None
    if len(given) < len(parameters):
        raise Malformed("a parameter of the startup message is stated twice")
    database = given.pop("database", "")
    user = given.pop("user", "")
    found = {each.name: each for each in read_options(given.pop("options", ""), limits)}
    for name, value in given.items():
        setting = Setting(name, value)
        reason = refusal(setting, limits)
        if reason is not None:
            raise Malformed(reason)
        if name in found:
            raise Malformed(f"the startup message states `{name}` twice")
        found[name] = setting
    # Without a database, libpq means the one that is named like the user.
    return SessionStart(database or user, tuple(found.values()))
