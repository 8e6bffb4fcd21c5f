"""Shows the console's pages of keys: list, create, bind, rotate, revoke.

A secret is shown in the answer to the form that creates it, and nowhere else. That form carries a
random text (`Idempotency-Key`), so a page that is loaded again creates no second key.
"""

from typing import Any

from control_api.console.page import NULL, HtmlPage, PageRedirect, Visit, address, get, post
from control_api.edge.requests import Repeated
from control_api.registry.key_operations import (
    bind_key,
    create_key,
    get_key,
    list_keys,
    revoke_key,
    rotate_key,
)
from control_api.registry.models import DEFAULT_DAYS, ListedKey
from policies.ground.canonical import micros
from policies.ground.errors import Conflict, SluiceError

DONE = {"revoked": "The key is revoked.", "bound": "The binding is in force."}
SCOPES = ("evaluate", "sidecar", "read", "admin")
_SOON = 14 * 86_400_000_000  # microseconds


async def show_keys(visit: Visit) -> HtmlPage:
    """Show the keys that are not revoked, newest first; with `of=pods`, the keys of enrolled pods
    instead."""
    enrolled = visit.query.get("of") == "pods"
    query = {"enrolled": "true" if enrolled else None, **visit.filled("cursor")}
    page = await visit.call(list_keys, limit="50", **query)
    values = {
        "rows": [(key, state_of(key, visit.console.clock.now())) for key in page.rows],
        "next": page.next,
        "enrolled": enrolled,
        "may_create": visit.may_call(create_key),
        "done_text": DONE.get(visit.query.get("done", "")),
    }
    return HtmlPage("keys/list.html", values)


async def show_new_key(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    values = {
        "given": visit.form or {"expires_days": str(DEFAULT_DAYS), "scope": SCOPES[0]},
        "scopes": SCOPES,
        "idempotency_key": new_idempotency_key(visit),
    }
    return HtmlPage("keys/new.html", values, problem)


async def create_new_key(visit: Visit) -> HtmlPage:
    try:
        made = await visit.call(create_key, **key_fields(visit))
    except Repeated as error:
        return HtmlPage("keys/created_already.html", {"key_id": error.created}, status=error.status)
    return HtmlPage("keys/created.html", {"made": made, "replaced": None}, status=201)


async def show_key(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    key = await visit.call(get_key, key_id=visit.required("id"))
    given = visit.form if problem is not None and "roles" in visit.form else None
    values = {
        "key": key,
        "state": state_of(key, visit.console.clock.now()),
        "agent_id": key.bound_agent_id if given is None else given.get("agent_id", ""),
        "roles": "\n".join(key.permitted_roles) if given is None else given.get("roles", ""),
        "agent_ids": "\n".join(key.agent_ids or ())
        if given is None
        else given.get("agent_ids", ""),
        "sidecar_ids": "\n".join(key.sidecar_ids or ())
        if given is None
        else given.get("sidecar_ids", ""),
        "may_change": visit.may_call(bind_key),
        "is_own": key.key_id == visit.signed_in.name,
        "done_text": DONE.get(visit.query.get("done", "")),
    }
    return HtmlPage("keys/key.html", values, problem)


async def change_binding(visit: Visit) -> PageRedirect:
    key_id = visit.required("id")
    agent_id = visit.form.text("agent_id") or NULL
    roles = lines(visit.form.get("roles", ""))
    speaking: dict[str, Any] = {}
    if "agent_ids" in visit.form:  # only the page of a sidecar's key has these fields
        speaking = {
            "agent_ids": lines(visit.form.get("agent_ids", "")),
            "sidecar_ids": lines(visit.form.get("sidecar_ids", "")) or NULL,
        }
    await visit.call(
        bind_key, key_id=key_id, bound_agent_id=agent_id, permitted_roles=roles, **speaking
    )
    return PageRedirect(address("/key", id=key_id, done="bound"))


async def rotate(visit: Visit) -> HtmlPage:
    key_id = visit.required("id")
    try:
        visit.form.require_checked()
        made = await visit.call(rotate_key, key_id=key_id)
    except Conflict as error:
        # Loaded again: the key is revoked, or has expired.
        return HtmlPage("keys/rotated_already.html", problem=error)
    return HtmlPage("keys/created.html", {"made": made, "replaced": key_id}, status=201)


async def revoke(visit: Visit) -> PageRedirect:
    visit.form.require_checked()
    await visit.call(revoke_key, key_id=visit.required("id"))
    return PageRedirect(address("/keys", done="revoked"))


def state_of(key: ListedKey, now: int) -> tuple[str, str]:
    """Return a word for the key's state at `now` (microseconds), and the tone in which it is
    shown."""
    if key.expires_at is None or (left := micros(key.expires_at) - now) >= _SOON:
        return "live", "good"
    return ("expires soon", "warn") if left > 0 else ("expired", "bad")


def key_fields(visit: Visit) -> dict[str, Any]:
    """Read the fields of a new key from the form. Raises `Invalid` if one is wrong."""
    form = visit.form
    days = form.number("expires_days")
    named = {name: lines(form.get(name, "")) for name in ("agent_ids", "sidecar_ids")}
    return {
        **{name: value for name, value in named.items() if value},
        "name": form.get("name", ""),
        "scope": form.get("scope", ""),
        "idempotency_key": form.get("idempotency_key", ""),
        # A field that was left empty, and no number, is a key that never expires.
        "expires_days": NULL if days is None else days,
    }


def new_idempotency_key(visit: Visit) -> str:
    """Return a random text, for a form that creates something with a secret."""
    return visit.console.signin.entropy(16).hex()


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


PAGES = (
    get("/keys", list_keys, show_keys),
    get("/keys/new", create_key, show_new_key),
    post("/keys/create", create_key, create_new_key, show_new_key),
    get("/key", get_key, show_key),
    post("/key/binding", bind_key, change_binding, show_key),
    post("/key/rotate", rotate_key, rotate, show_key),
    post("/key/revoke", revoke_key, revoke, show_key),
)
