"""Keeps the user, session and task that a session states: in its startup message, by
`SET sluice.user_id`, or in a comment of a single statement. They end here, and never reach the
server. As everywhere, they attribute and never authorize."""

from collections.abc import Iterable

from sidecar.http.attribution import Attribution
from sidecar.protocols.postgres.comments import StatedAttribution
from sidecar.protocols.postgres.parameters import Setting

PREFIX = "sluice."
_NOTHING = StatedAttribution()


class SessionAttribution:
    """What one session states. `default` counts where it states nothing."""

    def __init__(self, default: Attribution) -> None:
        self._default = default
        self._at_start: dict[str, str] = {}
        self._set: dict[str, str] = {}
        self._local: dict[str, str] = {}

    def start(self, settings: Iterable[Setting]) -> None:
        """Take what the startup message states."""
        for each in settings:
            if each.attributes is not None and each.value is not None:
                self._at_start[each.attributes] = each.value

    def set(self, setting: Setting) -> None:
        """Set a parameter `sluice.…`; no value means as at the start."""
        field = setting.attributes
        if field is None:
            return
        if setting.value is None:
            self._local.pop(field, None)
            self._set.pop(field, None)
        else:
            into = self._local if setting.local else self._set
            into[field] = setting.value

    def reset(self) -> None:
        """Go back to what the startup message states."""
        self._set.clear()
        self._local.clear()

    def transaction_ended(self) -> None:
        """Forget what was set for the transaction alone."""
        self._local.clear()

    def of(self, stated: StatedAttribution = _NOTHING) -> Attribution:
        """Return the attribution of a statement whose comments state `stated`."""
        default = self._default
        known = {**self._at_start, **self._set, **self._local}
        known |= {name: value for name, value in stated._asdict().items() if value is not None}
        if not known:
            return default
        return Attribution(
            known.get("user") or default.user,
            known.get("session") or default.session,
            known.get("task") or default.task,
            None,
        )
