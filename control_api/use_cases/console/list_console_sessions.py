"""Lists who is signed in to the console."""

from control_api.app_context import AppContext
from control_api.auth.console_session import last_idle
from control_api.auth.principal import Caller, Superadmin, realm_of
from control_api.presenters import shown_console_session
from control_api.requests.base import ListRequest
from control_api.responses.console import ConsoleSessionShown
from control_api.responses.paging import Page, page_of
from control_api.store.queries import console_sessions


async def list_console_sessions(
    app: AppContext, caller: Caller | Superadmin, request: ListRequest
) -> Page[ConsoleSessionShown]:
    """List the sessions of the console that have not ended, newest first.

    A session whose key was revoked or has expired is listed until its own limits, but dead.
    """
    realm, after, now = realm_of(caller), request.after(int, str), app.clock.now()
    live = (now, last_idle(app.settings, now))
    async with app.store.reading(realm) as connection:
        rows = await console_sessions.page(connection, realm, live, after, request.limit + 1)
    return page_of(
        rows, request.limit, lambda row: (row.created_at, row.session_id), shown_console_session
    )
