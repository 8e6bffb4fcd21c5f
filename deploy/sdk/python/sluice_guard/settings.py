"""Reads the arguments of `Guard` from environment variables, and reports all complaints at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_PREFIX = "SLUICE_GUARD_"


class UnusableSettings(KeyError, ValueError):
    """Raised for environment variables from which no guard can be made; its text names each of
    them. It is a `KeyError`, as for any absent variable, and a `ValueError`, as for any wrong
    one."""

    def __str__(self) -> str:
        return str(self.args[0])  # `KeyError` would show it in quotes


class Settings(NamedTuple):
    """The arguments of `Guard`, as read from environment variables."""

    url: str
    key: str
    agent_id: str
    role: str
    timeout: float


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read the variables `SLUICE_GUARD_…`. An empty variable counts as absent. Raises
    `UnusableSettings`."""
    given = {
        name: environ.get(f"{_PREFIX}{name}", "")
        for name in ("URL", "AGENT_ID", "ROLE", "KEY", "KEY_FILE", "TIMEOUT")
    }
    required = ("URL", "AGENT_ID", "ROLE")
    problems = [f"{_PREFIX}{name} is not set" for name in required if not given[name]]
    key, timeout = given["KEY"], 2.0
    if given["KEY_FILE"]:
        try:
            key = Path(given["KEY_FILE"]).read_text(encoding="ascii")
        except OSError as error:
            problems.append(f"{_PREFIX}KEY_FILE can't be read: {error}")
        except ValueError:  # its text would show the file's bytes
            problems.append(f"{_PREFIX}KEY_FILE: `{given['KEY_FILE']}` does not hold a key")
    elif not key:
        problems.append(f"{_PREFIX}KEY_FILE is not set, and no {_PREFIX}KEY either")
    if given["TIMEOUT"]:
        try:
            timeout = float(given["TIMEOUT"])
        except ValueError:
            problems.append(f"{_PREFIX}TIMEOUT: `{given['TIMEOUT']}` is no number of seconds")
    if problems:
        raise UnusableSettings("; ".join(problems))
    return Settings(given["URL"], key.strip(), given["AGENT_ID"], given["ROLE"], timeout)
