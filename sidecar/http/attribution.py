"""Reads which user, session and task a proxied request names (`protocols/RULES.md`, Precedence).

The agent itself supplies these values, so they are attribution and never authority: what may be
read depends on the agent and role in the sidecar's own configuration. A stated sensitivity can only
raise the source's level.
"""

from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from policies.definitions.model import RANK, SENSITIVITIES, Sensitivity
from policies.ground.canonical import identifier_fault
from policies.ground.errors import Malformed
from sidecar.http.headers import BAGGAGE, RequestHead
from sidecar.settings.model import Defaults

_FIELDS = ((b"x-sluice-user", "user"), (b"x-sluice-session", "session"), (b"x-sluice-task", "task"))
_SENSITIVITY = b"x-sluice-sensitivity"
_STATED = frozenset((*(name for name, _ in _FIELDS), _SENSITIVITY, BAGGAGE))
_LEVELS: dict[str, Sensitivity] = {level: level for level in SENSITIVITIES}


class Attribution(NamedTuple):
    """The user, session and task that a request is for. `sensitivity` is the sensitivity that the
    request states, None if it states none."""

    user: str
    session: str | None
    task: str | None
    sensitivity: Sensitivity | None

    def level(self, configured: Sensitivity) -> Sensitivity:
        stated = self.sensitivity
        return stated if stated is not None and RANK[stated] > RANK[configured] else configured


def default_attribution(defaults: Defaults, agent: str) -> Attribution:
    """Return the attribution of a request that names no user, session or task, or that can't be
    read. Without a configured user, the user is `agent`: the agent acts for itself."""
    return Attribution(defaults.user or agent, defaults.session, defaults.task, None)


def attribution(head: RequestHead, default: Attribution) -> Attribution:
    """Return the attribution of a request: each value from its header, else from the `baggage`
    header, else from `default`.

    Raises `Malformed` if a value is stated twice or is not an identifier: two readers of the same
    request must not see two users.
    """
    read = head.read
    # Most requests state nothing, and share one object.
    if _STATED.isdisjoint(read):
        return default
    stated = [_identifier(head.one(name), name) for name, _ in _FIELDS]
    # Baggage is read only for values that no header states: headers take precedence.
    baggage = read.get(BAGGAGE)
    if baggage is not None and None in stated:
        found = _own_members(baggage)
        stated = [
            value if value is not None else found.get(short)
            for value, (_, short) in zip(stated, _FIELDS, strict=True)
        ]
    user, session, task = stated
    return Attribution(
        user or default.user, session or default.session, task or default.task, _level(head)
    )


def _level(head: RequestHead) -> Sensitivity | None:
    raw = head.one(_SENSITIVITY)
    if raw is None:
        return None
    level = _LEVELS.get(raw.decode("latin-1"))
    if level is None:
        raise Malformed("the header `x-sluice-sensitivity` must be low, medium, high or critical")
    return level


def _identifier(raw: bytes | None, name: bytes) -> str | None:
    if raw is None:
        return None
    try:
        value = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed(f"`{name.decode()}` is not UTF-8") from None
    fault = identifier_fault(value)
    if fault is not None:
        raise Malformed(f"`{name.decode()}` {fault}")
    return value


def _own_members(lines: list[bytes]) -> dict[str, str]:
    """Return the values of the baggage members `sluice.user`, `sluice.session` and `sluice.task`,
    percent-decoded, under the keys `user`, `session` and `task`. Raises `Malformed` if one is
    stated twice or is not an identifier."""
    found: dict[str, str] = {}
    for line in lines:
        for member in line.split(b","):
            key, equals, rest = member.partition(b"=")
            key = key.strip(b" \t")
            if not equals or not key.startswith(b"sluice."):
                continue
            short = key[7:].decode("latin-1")
            if short in found:
                raise Malformed(f"baggage states `sluice.{short[:32]}` twice")
            if any(short == field for _, field in _FIELDS):
                # W3C Baggage: properties follow the value after `;`, and values are escaped.
                value = unquote_to_bytes(rest.partition(b";")[0].strip(b" \t"))
                found[short] = _identifier(value, b"sluice." + key[7:]) or ""
    return found
