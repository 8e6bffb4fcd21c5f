"""Retention: how long records are kept, what was purged with its proof, and what a hold keeps."""

from control_api.console.page import ROOT, Html, Page, See
from control_api.console.visit import Visit, address
from control_api.responses.audit import Retention
from control_api.responses.management import RetentionSettings
from control_api.use_cases.audit.retention_settings import (
    change_retention_settings,
    show_retention_settings,
)
from control_api.use_cases.audit.show_retention import show_retention
from policies.ground.errors import Invalid, SluiceError

DONE = {"changed": "Changed. The next purge, within an hour, applies it."}


async def show_retention_page(visit: Visit, problem: SluiceError | None = None) -> Html:
    """How long records are kept, and what is gone."""
    found: Retention | None = None
    settings: RetentionSettings | None = None
    try:
        settings = await visit.call(show_retention_settings)
        found = await visit.call(show_retention)
    except SluiceError as error:
        problem = problem or error
    purged = None if found is None or found.anchor is None else str(found.anchor.tree_size)
    values = {
        "found": found,
        "settings": settings,
        "problem": problem,
        "done_text": DONE.get(visit.query.get("done", "")),
        "may_change": visit.may(change_retention_settings),
        "growth": purged and address("/decision/growth", **{"from": purged}),
        "typed": visit.form,
    }
    return Html("audit/retention.html", values, 200 if problem is None else problem.status)


async def change(visit: Visit) -> Html | See:
    """Change how long records are kept."""
    try:
        await visit.call(
            change_retention_settings,
            retention_days=_days(visit, "retention_days"),
            session_retention_days=_days(visit, "session_retention_days"),
        )
    except SluiceError as error:
        return await show_retention_page(visit, error)
    return See(address("/audit/retention", done="changed"))


def _days(visit: Visit, name: str) -> int:
    text = visit.form.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 4):
        raise Invalid(f"`{name}`: must be a number of days from 0 to 3650; 0 keeps forever")
    return int(text)


PAGES = (
    Page("GET", f"{ROOT}/audit/retention", show_retention, show_retention_page),
    Page("POST", f"{ROOT}/audit/retention/change", change_retention_settings, change),
)
