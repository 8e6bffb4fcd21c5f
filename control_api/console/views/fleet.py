"""Shows every sidecar, those with problems first."""

from typing import Any, NamedTuple

from control_api.audit.change_operations import show_acknowledgements
from control_api.console.page import HtmlPage, Visit, get
from control_api.console.static import span
from control_api.console.views.overview import LATE_MS, STALE_MS
from control_api.console.words import number_of
from control_api.fleet.models import SidecarResponse
from control_api.fleet.operations import list_sidecars
from control_api.policy.source_operations import list_sources
from policies import __version__

READ = 1000
"""The most sidecars that one page reads in order to sort them."""
SHOWN = 100
"""The most sidecars that one page shows."""


class Trouble(NamedTuple):
    """A problem of a sidecar. Problems are sorted by `rank`: 0 is the worst."""

    rank: int
    tone: str
    word: str
    text: str


class SidecarRow(NamedTuple):
    sidecar: SidecarResponse
    troubles: list[Trouble]
    behind: int
    applied: Any
    """The record of the sidecar that shows the tenant's present revision (`Applied`); None if there
    is none."""


async def show_fleet(visit: Visit) -> HtmlPage:
    """Show each sidecar with its problems, and say which do not have the newest change in force
    yet."""
    page = await visit.call(list_sidecars, limit=str(READ), **visit.filled("cursor"))
    found = await visit.call(show_acknowledgements, limit=str(READ))
    acknowledged = found.response
    stated = await visit.call(list_sources, limit="1")
    applied = {each.sidecar_id: each for each in acknowledged.applied}
    rows = [
        SidecarRow(
            each,
            troubles(each, visit.revision, levels=bool(stated.rows)),
            max(0, visit.revision - each.revision),
            applied.get(each.sidecar_id),
        )
        for each in page.rows
    ]
    rows.sort(key=lambda row: (row.troubles[0].rank if row.troubles else 9, row.sidecar.sidecar_id))
    only = visit.query.get("show") == "troubled"
    listed = [row for row in rows if row.troubles] if only else rows
    values = {
        "rows": listed[:SHOWN],
        "left": max(0, len(listed) - SHOWN),
        "only": only,
        "next": page.next,
        "revision": visit.revision,
        "version_here": __version__,
        "live": sum(row.sidecar.live for row in rows),
        "troubled": sum(bool(row.troubles) for row in rows),
        "waiting": sum(row.sidecar.spool_depth for row in rows),
        "missing": acknowledged.missing,
        "applied": acknowledged.applied,
    }
    return HtmlPage("fleet.html", values)


def troubles(sidecar: SidecarResponse, revision: int, *, levels: bool = False) -> list[Trouble]:
    """Return the problems of a sidecar, the worst first. `levels` is True if the tenant states
    levels of sources."""
    found = []
    if sidecar.forked:
        text = f"The log contradicts the checkpoint that it has pinned: {sidecar.forked}"
        found.append(Trouble(0, "bad", "diverging", text))
    if sidecar.duplicate:
        text = "Two processes report under its id: each needs an id of its own."
        found.append(Trouble(1, "bad", "duplicate", text))
    if not sidecar.live:
        text = "It has not reported for more than 15 seconds. It may have stopped, or be cut off."
        found.append(Trouble(2, "bad", "silent", text))
    if sidecar.refusing:
        found.append(Trouble(3, "bad", "refusing", f"It denies every request: {sidecar.refusing}"))
    if sidecar.policy_set_age_ms is None:
        found.append(Trouble(4, "bad", "no policies", "It has no policy set yet, and denies."))
    elif sidecar.policy_set_age_ms > STALE_MS:
        age = span(sidecar.policy_set_age_ms / 1000)
        text = f"It last heard {age} ago that its policies are current. Past its limit it denies."
        found.append(Trouble(4, "warn", "stale", text))
    if levels and not sidecar.source_levels:
        text = "Its version ignores the levels that the tenant states of sources: update it."
        found.append(Trouble(5, "warn", "ignores levels", text))
    if sidecar.revision < revision and sidecar.live:
        count = revision - sidecar.revision
        text = f"It decides by policies that are {number_of(count, 'change')} old."
        found.append(Trouble(5, "warn", "late", text))
    if sidecar.oldest_unshipped_ms is not None and sidecar.oldest_unshipped_ms > LATE_MS:
        age = span(sidecar.oldest_unshipped_ms / 1000)
        records = number_of(sidecar.spool_depth, "record")
        text = f"{records} on its disk are not in the log yet, the oldest for {age}."
        found.append(Trouble(6, "warn", "shipping late", text))
    return found


PAGES = (get("/fleet", list_sidecars, show_fleet),)
