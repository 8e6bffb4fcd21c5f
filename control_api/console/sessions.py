"""Begins, finds and ends the sessions of the console, with their cookies, and slows down repeated
failures to sign in. The sessions are in the store, so that every worker and replica agrees.

Only the answer to a failure is slowed: a valid key is never refused nor delayed, so that people
behind one proxy, who share an address, can't be locked out by one of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from control_api.auth import NextAuthenticator, RateLimit
from control_api.console.page import Console, SignedIn
from control_api.metrics.labels import RefusalReason
from control_api.metrics.metrics import Instruments
from control_api.signin.console_session import SessionReader
from control_api.signin.operations import sign_in_with_key, sign_out, use_sign_in_link
from policies.ground.errors import Forbidden, TooMany

FREE = 3
"""The number of failures from one address that are answered at once, before answers are delayed."""
FIRST_SECONDS = 0.25
MOST_SECONDS = 4.0
FORGET_SECONDS = 600.0
"""Seconds after its last failure for which an address is remembered."""
MAX_ADDRESSES = 4096
MAX_WAITING = 64
"""The most failures whose answers wait at a time in this process; any other is refused at once."""


class FailedSignIns:
    """Counts failures to sign in by address, in this process, and delays their answers. `monotonic`
    is in seconds."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        instruments: Instruments,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._now = monotonic
        self._sleep = sleep
        self._refused = instruments.http.refusals.labels(RefusalReason.rate)
        self._failures: dict[str, tuple[int, float]] = {}
        self._waiting = 0

    async def wait(self, address: str) -> None:
        """Record a failure, and wait: the more failures of this address, the longer. Raises
        `TooMany` if too many answers wait already."""
        now = self._now()
        count, last = self._failures.pop(address, (0, now))
        count = 1 if now - last > FORGET_SECONDS else count + 1
        self._failures[address] = (count, now)
        if len(self._failures) > MAX_ADDRESSES:
            del self._failures[next(iter(self._failures))]
        if count <= FREE:
            return
        if self._waiting >= MAX_WAITING:
            self._refused.inc()
            raise TooMany("too many failed attempts to sign in: try again in a few seconds")
        self._waiting += 1
        try:
            await self._sleep(min(MOST_SECONDS, FIRST_SECONDS * 2 ** min(count - FREE - 1, 10)))
        finally:
            self._waiting -= 1


class ConsoleSessions:
    """Finds, begins and ends the console's sessions. `read` finds the visitor of a token,
    `authenticate` the caller of a key. If `authenticate` has a rate limit, it applies to sessions
    too."""

    def __init__(
        self, console: Console, read: SessionReader, authenticate: NextAuthenticator
    ) -> None:
        self._console = console
        self._read = read
        self._authenticate = authenticate
        self._limit = authenticate if isinstance(authenticate, RateLimit) else None
        self.failures = FailedSignIns(console.clock.monotonic, console.instruments)

    async def find(self, cookie: str | None) -> SignedIn | None:
        """Return the person who is signed in by this cookie; None if there is no such session.
        Raises `OverLimit` beyond the rate limit."""
        visitor = None if cookie is None else await self._read(cookie)
        if visitor is None:
            return None
        if self._limit is not None:
            self._limit.admit(visitor.caller)
        return SignedIn.of(visitor)

    async def begin(self, key: str, browser: str, remote: str) -> str:
        """Sign in with an API key, and return the cookie's value. Raises as the API does for a
        key."""
        try:
            caller = await self._authenticate(key)
            return (await sign_in_with_key(self._console.signin, caller, browser)).token.write()
        except Forbidden:
            await self.failures.wait(remote)
            raise

    async def begin_by_link(self, code: str, browser: str, remote: str) -> str:
        """Sign in with the code of a one-time link, and return the cookie's value. Raises
        `Forbidden` if the link is unknown, used or expired."""
        try:
            return (await use_sign_in_link(self._console.signin, code, browser)).token.write()
        except Forbidden:
            await self.failures.wait(remote)
            raise

    async def end(self, who: SignedIn) -> None:
        """End the session at once, in every process."""
        await sign_out(self._console.signin, who.visitor)


SESSION = "sluice_console"
ATTEMPT = "sluice_console_oidc"


def cookie_name(plain: str = SESSION, *, secure: bool) -> str:
    """Return the cookie's whole name, with the prefix `__Host-` over HTTPS. Browsers accept that
    prefix over HTTPS only, for the whole host, and from no other host of the domain (RFC 6265bis,
    section 4.1.3)."""
    return f"__Host-{plain}" if secure else plain


def presented_cookie(headers: Iterable[str], plain: str = SESSION, *, secure: bool) -> str | None:
    """Return the cookie's value among these `Cookie` headers. None if there is none, or several:
    then another host of the domain, or an earlier path, has set one, and none of them can be
    trusted."""
    wanted = cookie_name(plain, secure=secure)
    found = []
    for header in headers:
        for pair in header.split(";"):
            name, _, value = pair.strip().partition("=")
            if name == wanted:
                found.append(value)
    return found[0] if len(found) == 1 else None


def session_cookie(value: str, *, secure: bool) -> str:
    """Return the `Set-Cookie` header of a session that begins. It has no `Max-Age`, since the
    server knows when the session ends."""
    return f"{cookie_name(secure=secure)}={value}; {_attributes(secure=secure)}"


def attempt_cookie(value: str, seconds: int, *, secure: bool) -> str:
    """Return the `Set-Cookie` header of an attempt to sign in at the identity provider. It is
    `SameSite=Lax`, since the provider is another site, and its answer must come with this
    cookie."""
    name, end = cookie_name(ATTEMPT, secure=secure), "; Secure" if secure else ""
    return f"{name}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Lax{end}"


def no_cookie(*, secure: bool) -> str:
    """Return the `Set-Cookie` header that removes the cookie of a session that ends."""
    return f"{cookie_name(secure=secure)}=; Max-Age=0; {_attributes(secure=secure)}"


def _attributes(*, secure: bool) -> str:
    return "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
