"""Where the operator's key and TLS files come from: options, the environment, files.

A key is never an argument, which every user of the machine could read. Knows no request.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from deploy.client.connection import LOOPBACK, ApiConnection

if TYPE_CHECKING:
    import argparse
    import ssl

URL = "http://127.0.0.1:8700"
LONGEST = 4096


class UnusableCredentials(Exception):
    """arguments, environment or files that can't be used"""


class Credential(NamedTuple):
    """A key, and what to call the place it came from."""

    value: str | None
    origin: str


def connect(
    chosen: argparse.Namespace, environ: Mapping[str, str]
) -> tuple[ApiConnection, Credential]:
    """What the options and the environment say; `UnusableCredentials` in words that never show a
    key."""
    url = chosen.url or environ.get("SLUICE_URL") or URL
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        parts, fits = urlsplit(""), False
    if not fits or parts.username is not None or parts.query or parts.fragment:
        # It may hold a password: it is not repeated.
        raise UnusableCredentials(f"--url or SLUICE_URL is not an address such as {URL}")
    key = find_key(chosen.key_file, environ)
    tls = _tls(chosen) if parts.scheme == "https" else None
    if tls is None and (chosen.ca or chosen.cert or chosen.cert_key):
        raise UnusableCredentials(
            f"--ca, --cert and --cert-key are for https://, and the address is `{url}`"
        )
    if tls is None and key.value is not None and parts.hostname not in LOOPBACK:
        print(f"sluice: warning: the key goes unencrypted to `{url}`", file=sys.stderr)
    return ApiConnection(url, key.value, tls), key


def find_key(option: str | None, environ: Mapping[str, str]) -> Credential:
    """`--key-file`, else SLUICE_KEY_FILE, else SLUICE_API_KEY."""
    if name := option or environ.get("SLUICE_KEY_FILE"):
        return Credential(_usable(_from_file(Path(name)), f"`{name}`"), f"the key in `{name}`")
    if text := environ.get("SLUICE_API_KEY"):
        return Credential(_usable(text.strip(), "SLUICE_API_KEY"), "the key in SLUICE_API_KEY")
    return Credential(None, "no key")


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & 0o077:
                raise UnusableCredentials(
                    f"key file `{path}` is open to other users (mode {stat.S_IMODE(mode):04o}) "
                    f"and was not used: chmod 600 {path}"
                )
            text = file.read(LONGEST + 1).decode("ascii").strip()
    except OSError as error:
        raise UnusableCredentials(f"key file `{path}` can't be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UnusableCredentials(f"key file `{path}` does not hold a key") from None
    if not text.startswith("{"):
        return text
    try:  # `first-start.json`, which the control API writes at its first start
        return str(json.loads(text)["admin_key"])
    except (ValueError, KeyError):
        raise UnusableCredentials(f"`{path}` is JSON without an `admin_key`") from None


def _usable(text: str, origin: str) -> str:
    """What may stand in a header."""
    if not text or len(text) > LONGEST or not text.isascii() or not text.isprintable():
        raise UnusableCredentials(f"{origin} does not hold a key")
    return text


def _tls(chosen: argparse.Namespace) -> ssl.SSLContext:
    import ssl

    if chosen.cert_key and not chosen.cert:
        raise UnusableCredentials("--cert-key needs --cert")
    try:
        context = ssl.create_default_context(cafile=chosen.ca)
        if chosen.cert:
            context.load_cert_chain(chosen.cert, chosen.cert_key)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or str(error)
        raise UnusableCredentials(f"--ca, --cert and --cert-key can't be used: {why}") from error
    return context
