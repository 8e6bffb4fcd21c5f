"""Exchanges an API key for a session of the console. The key itself is not kept anywhere."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller, Superadmin
from control_api.domain.console_sessions import NewSession, SignIn, begin_session


async def sign_in_with_key(
    app: AppContext, caller: Caller | Superadmin, browser: str
) -> NewSession:
    """Begin a session of a caller that has just presented its key."""
    return await begin_session(app, SignIn(caller, "key", browser))
