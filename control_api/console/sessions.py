"""Begins, finds and ends the sessions of the console. All state is in the store, so that every
worker and replica agrees. Knows no page."""

from control_api.app_context import AppContext
from control_api.auth.console_session import SessionReader
from control_api.auth.rate_limit import NextAuthenticator, RateLimit
from control_api.console.failed_sign_ins import FailedSignIns
from control_api.console.visit import SignedIn
from control_api.use_cases.console.end_console_session import sign_out
from control_api.use_cases.console.sign_in import sign_in_with_key
from control_api.use_cases.console.use_sign_in_link import use_sign_in_link
from policies.ground.errors import Forbidden


class ConsoleSessions:
    """`read` finds the visitor of a token, `authenticate` the caller of a key. If that is limited
    in its rate, sessions are too."""

    def __init__(
        self, app: AppContext, read: SessionReader, authenticate: NextAuthenticator
    ) -> None:
        self._app = app
        self._read = read
        self._authenticate = authenticate
        self._limit = authenticate if isinstance(authenticate, RateLimit) else None
        self.failures = FailedSignIns(app.clock.monotonic, app.instruments)

    async def find(self, cookie: str | None) -> SignedIn | None:
        """Who is signed in by this cookie; None if the session has ended. Raises `OverLimit`."""
        visitor = None if cookie is None else await self._read(cookie)
        if visitor is None:
            return None
        if self._limit is not None:
            self._limit.admit(visitor.caller)
        return SignedIn.of(visitor)

    async def begin(self, key: str, browser: str, remote: str) -> str:
        """Sign in with an API key. Returns the cookie's value. Raises as the API does."""
        try:
            caller = await self._authenticate(key)
            return (await sign_in_with_key(self._app, caller, browser)).token.write()
        except Forbidden:
            await self.failures.wait(remote)
            raise

    async def begin_by_link(self, code: str, browser: str, remote: str) -> str:
        """Sign in with the code of a one-time link. Returns the cookie's value. Raises `Forbidden`
        if the link does not work, or not any more."""
        try:
            return (await use_sign_in_link(self._app, code, browser)).token.write()
        except Forbidden:
            await self.failures.wait(remote)
            raise

    async def end(self, who: SignedIn) -> None:
        """End the session at once, in every process."""
        await sign_out(self._app, who.visitor)
