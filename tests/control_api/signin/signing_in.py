"""One sign-in without a console: what a page would do with an `IdentityProvider`."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from control_api.security.console_settings import OidcSettings, parse_group_grants
from control_api.signin.attempt import Attempt, Person
from control_api.signin.provider import IdentityProvider
from policies.ground.clock import Clock
from tests.control_api.signin.browser import Browser
from tests.control_api.signin.real_provider import CLIENT, SECRET

REDIRECT = "http://127.0.0.1:8700/console/oidc/callback"


@dataclass
class Time:
    """The real time, and what a test adds to it, in seconds."""

    ahead: float = 0.0
    waited: float = 0.0

    def clock(self) -> Clock:
        return Clock(
            lambda: time.time_ns() // 1000 + int(self.ahead * 1e6),
            lambda: time.monotonic() + self.waited,
        )


@dataclass
class Client:
    """An `IdentityProvider` and a browser."""

    settings: OidcSettings
    time: Time = field(default_factory=Time)
    browser: Browser = field(default_factory=Browser)

    def __post_init__(self) -> None:
        self.idp = IdentityProvider(self.settings, self.time.clock())

    async def begin(self) -> tuple[Attempt, str]:
        attempt = Attempt.new(os.urandom)
        return attempt, await self.idp.authorization_url(attempt)

    async def answered(self, person: str) -> tuple[Attempt, dict[str, str]]:
        """What the browser brings back from the provider."""
        attempt, url = await self.begin()
        back = await asyncio.to_thread(self.browser.sign_in, url, person, REDIRECT)
        return attempt, dict(parse_qsl(urlsplit(back).query))

    async def signed_in(self, person: str) -> Person:
        attempt, answer = await self.answered(person)
        return await self.idp.person(answer, attempt)


def settings_for(issuer: str, **changed: Any) -> OidcSettings:
    made: dict[str, Any] = {
        "issuer": issuer,
        "client_id": CLIENT,
        "client_secret": SECRET,
        "redirect_uri": REDIRECT,
        "scopes": (),
        "groups_claim": "groups",
        "groups": parse_group_grants("sluice-admins=admin@default"),
        "ca": None,
        **changed,
    }
    return OidcSettings(**made)


def client_of(issuer: str, ca: Path | None = None, **changed: Any) -> Client:
    settings = settings_for(issuer, ca=ca, **changed)
    return Client(settings, browser=Browser(str(ca) if ca else True))
