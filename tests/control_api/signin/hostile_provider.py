"""An identity provider that lies, hangs or floods, as a test tells it. Its tokens are signed well
unless it is told otherwise. Knows nothing of the service."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
DISCOVERY = "/.well-known/openid-configuration"


def new_key() -> RSAKey:
    return RSAKey.generate_key(2048)


class HostileProvider:
    """It signs with `key`, which has the name `kid`, and publishes that or else `published`.
    `metadata`, `claims` and `tokens` are changed by tests; None leaves a member out. A handler
    in `instead` answers its path; `asked` counts the requests by path."""

    def __init__(self, port: int) -> None:
        self.issuer = f"http://127.0.0.1:{port}"
        self.key = new_key()
        self.kid: str | None = "k"
        self.published: RSAKey | None = None
        self.metadata: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.tokens: dict[str, Any] = {}
        self.user_info: dict[str, Any] = {}
        self.instead: dict[str, Handler] = {}
        self.asked: Counter[str] = Counter()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked[request.path] += 1
        if handler := self.instead.get(request.path):
            return await handler(request)  # type: ignore[arg-type]
        answers: dict[str, Callable[[], dict[str, Any]]] = {
            DISCOVERY: self._described,
            "/jwks": self._keys,
            "/token": self._tokens,
            "/userinfo": lambda: self.user_info,
        }
        return web.json_response(answers[request.path]())

    def _described(self) -> dict[str, Any]:
        return _given(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
                "userinfo_endpoint": f"{self.issuer}/userinfo",
                **self.metadata,
            }
        )

    def _keys(self) -> dict[str, Any]:
        key = self.published or self.key
        return {"keys": [_given({**key.as_dict(private=False), "kid": self.kid})]}

    def _tokens(self) -> dict[str, Any]:
        now = int(time.time())
        claims = {"iss": self.issuer, "sub": "ann", "aud": "sluice", "iat": now, "exp": now + 60}
        header = _given({"alg": "RS256", "kid": self.kid})
        token = jwt.encode(header, _given({**claims, **self.claims}), self.key)
        return _given(
            {"id_token": token, "access_token": "a", "token_type": "Bearer"} | self.tokens
        )


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


@asynccontextmanager
async def lying(port: int) -> AsyncIterator[HostileProvider]:
    provider = HostileProvider(port)
    runner = web.ServerRunner(web.Server(provider), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield provider
    finally:
        await runner.cleanup()
