"""A certified identity provider, as a process of its own: npm's `oidc-provider`, and its people.

A person signs in by any password. `restart` gives it other keys, people or clients, on its port.
"""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey

from tests.servers import need
from tests.support import waiting
from tests.support.ports import free_port

DRIVER = Path(__file__).with_name("provider.mjs")
CLIENT, SECRET = "sluice", "a secret+of the client/with % signs"
PEOPLE: dict[str, dict[str, Any]] = {
    "ann": {
        "email": "ann@example.com",
        "email_verified": True,
        "preferred_username": "ann",
        "groups": ["sluice-admins", "everyone"],
    },
    "ben": {"email": "ben@example.com", "email_verified": False, "groups": ["sluice-auditors"]},
    "cleo": {"preferred_username": "cleo", "groups": ["sluice-auditors", "sluice-admins"]},
    "dora": {"preferred_username": "dora", "groups": ["everyone"]},
    "eve": {"preferred_username": "superadmin", "groups": ["sluice-operators"]},
    "finn": {"preferred_username": "finn", "groups": ["sluice-auditors", "acme-admins"]},
    "gil": {"preferred_username": "gil"},
}
"""By their subject."""


def new_keys(*kinds: str) -> dict[str, Any]:
    """A private JWKS with a key of each kind: RSA, EC, OKP."""
    made: list[Any] = []
    for kind in kinds or ("RSA",):
        parameters: Any = {"use": "sig"}
        if kind == "RSA":
            made.append(RSAKey.generate_key(2048, parameters, auto_kid=True))
        elif kind == "EC":
            made.append(ECKey.generate_key("P-256", parameters, auto_kid=True))
        else:
            made.append(OKPKey.generate_key("Ed25519", parameters, auto_kid=True))
    return dict(KeySet(made).as_dict(private=True))


class RealProvider:
    """`issuer` is where it listens. `tls` are the files of its certificate and key, and `ca` is the
    authority that vouches for it."""

    def __init__(self, folder: Path, *, tls: tuple[Path, Path] | None = None) -> None:
        self._node, index = need("node"), need("oidc-provider")
        self._index = index
        self._folder = folder
        self.port = free_port()
        scheme = "https" if tls else "http"
        self.issuer = f"{scheme}://localhost:{self.port}"
        self.tls = tls
        self.ca: Path | None = None
        self.configuration: dict[str, Any] = {
            "issuer": self.issuer,
            "port": self.port,
            "tls": {"cert": str(tls[0]), "key": str(tls[1])} if tls else None,
            "jwks": new_keys(),
            "people": PEOPLE,
            "clients": [],
            "inToken": True,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def add_client(self, redirect_uri: str, **changed: Any) -> None:
        """A client that may send people back to `redirect_uri`."""
        client = {
            "client_id": CLIENT,
            "client_secret": SECRET,
            "redirect_uris": [redirect_uri],
            "post_logout_redirect_uris": [redirect_uri.removesuffix("/oidc/callback") + "/sign-in"],
            **changed,
        }
        self.configuration["clients"] = [client]

    def start(self) -> None:
        file = self._folder / f"provider-{self.port}.json"
        file.write_text(json.dumps(self.configuration))
        self.output = self._folder / f"provider-{self.port}.log"
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [self._node, DRIVER, self._index, file], stdout=output, stderr=output
            )
        waiting.until("the provider answers", self._answers)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self, **changed: Any) -> None:
        self.stop()
        self.configuration.update(changed)
        self.start()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.output.read_text()
        try:
            connection: http.client.HTTPConnection
            if self.tls:
                context = ssl.create_default_context(cafile=self.ca)
                connection = http.client.HTTPSConnection(
                    "localhost", self.port, timeout=5, context=context
                )
            else:
                connection = http.client.HTTPConnection("localhost", self.port, timeout=5)
            connection.request("GET", "/.well-known/openid-configuration")
            answered = connection.getresponse().status == 200
            connection.close()
        except OSError:
            return False
        return answered
