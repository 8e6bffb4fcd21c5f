"""Requests to the identity provider, each within a budget of time and bytes. Knows no protocol."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from control_api.signin.person import ProviderUnavailable
from policies.ground.errors import Malformed
from policies.ground.json_body import parse_object

CONNECT_SECONDS = 3.0
TOTAL_SECONDS = 5.0
MAX_BYTES = 256 * 1024
"""A key set with certificates has some 10 kB, and a person's token with 200 groups as much."""
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "sluice"}
_FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Fetched:
    """The status, and the JSON object that came with it."""

    status: int
    body: dict[str, Any]


class ProviderClient:
    """`ca` holds the authorities that vouch for the provider, instead of the system's."""

    def __init__(self, ca: Path | None) -> None:
        self._tls = ssl.create_default_context(cafile=ca)

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The JSON object at `url`. Raises `ProviderUnavailable`."""
        found = await self._request("GET", url, headers or {}, None)
        if found.status != 200:
            raise ProviderUnavailable(f"`{url}` answered {found.status}")
        return found.body

    async def post(self, url: str, headers: Mapping[str, str], form: str) -> Fetched:
        """The answer to a form. Raises `ProviderUnavailable` if it is no JSON object."""
        return await self._request("POST", url, {**headers, "Content-Type": _FORM}, form)

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], form: str | None
    ) -> Fetched:
        try:
            status, raw = await self._read(method, url, headers, form)
        except TimeoutError:
            raise ProviderUnavailable(f"no answer from `{url}` in {TOTAL_SECONDS:g} s") from None
        except (ClientError, OSError, ValueError) as error:
            # Not the headers or the form: they hold secrets.
            raise ProviderUnavailable(
                f"`{url}` can't be asked: {str(error) or type(error).__name__}"
            ) from None
        try:
            return Fetched(status, parse_object(raw, None, unique=True))
        except Malformed:
            raise ProviderUnavailable(
                f"`{url}` answered {status}, and not with a JSON object"
            ) from None

    async def _read(
        self, method: str, url: str, headers: Mapping[str, str], form: str | None
    ) -> tuple[int, bytes]:
        # No redirect and no proxy from the environment: both lead elsewhere, and what is read here
        # decides who a person is.
        async with (
            ClientSession(
                connector=TCPConnector(ssl=self._tls, force_close=True, limit=1),
                cookie_jar=DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,  # a small answer must not become a large one in memory
                timeout=ClientTimeout(total=TOTAL_SECONDS, sock_connect=CONNECT_SECONDS),
                headers=_HEADERS,
            ) as session,
            session.request(
                method, url, headers=headers, data=form, allow_redirects=False
            ) as answer,
        ):
            raw = b""
            while chunk := await answer.content.readany():
                raw += chunk
                if len(raw) > MAX_BYTES:
                    raise ProviderUnavailable(f"`{url}` answered more than {MAX_BYTES} bytes")
            return answer.status, raw
