"""Finds the operator's key and TLS files: from options, the environment and files.

A key is never an argument, since every user of the machine can read a process's arguments. Knows no
request.
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

from deploy.commands.client.connection import LOOPBACK, ApiConnection

if TYPE_CHECKING:
    import argparse
    import ssl

URL = "http://127.0.0.1:8700"
MAX_KEY = 4096


class UnusableArguments(Exception):
    """arguments, environment or files that can't be used"""


class Credential(NamedTuple):
    """A key, and a description of its origin for messages."""

    value: str | None
    origin: str


def connect(
    options: argparse.Namespace, environ: Mapping[str, str]
) -> tuple[ApiConnection, Credential]:
    """The connection and the key that the options and the environment give. Raises
    `UnusableArguments`, whose message never contains a key."""
    url = options.url or environ.get("SLUICE_URL") or URL
    try:
        parts = urlsplit(url)
        # `port` raises, too, if the number is over 65535.
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        parts, fits = urlsplit(""), False
    # A query or a fragment would end up between the address and each request's path.
    if not fits or parts.username is not None or parts.query or parts.fragment:
        # The message does not repeat the address, which may contain a password.
        raise UnusableArguments(f"--url or SLUICE_URL is not an address such as {URL}")
    key = find_key(options.key_file, environ)
    ca = options.ca or environ.get("SLUICE_CA") or None
    tls = _tls(options, ca) if parts.scheme == "https" else None
    # SLUICE_CA may be set for other commands, whose address is https.
    if tls is None and (options.ca or options.cert or options.cert_key):
        raise UnusableArguments(
            f"--ca, --cert and --cert-key apply only to https://, but the address is `{url}`"
        )
    if tls is None and key.value is not None and parts.hostname not in LOOPBACK:
        print(f"sluice: warning: sending the key unencrypted to `{url}`", file=sys.stderr)
    return ApiConnection(url, key.value, tls), key


def find_key(option: str | None, environ: Mapping[str, str]) -> Credential:
    """The key in the file of `--key-file`, else of SLUICE_KEY_FILE, else in SLUICE_API_KEY."""
    # Files come first: every child process inherits a key in the environment.
    if name := option or environ.get("SLUICE_KEY_FILE"):
        return Credential(_usable(_from_file(Path(name)), f"`{name}`"), f"the key in `{name}`")
    if text := environ.get("SLUICE_API_KEY"):
        return Credential(_usable(text.strip(), "SLUICE_API_KEY"), "the key in SLUICE_API_KEY")
    return Credential(None, "no key")


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            # Check the open file: a file checked by its path could be replaced before it is read.
            # A pipe passes: `--key-file <(pass show sluice)` leaves no file behind.
            status = os.fstat(file.fileno())
            mode = status.st_mode
            # A mounted Kubernetes Secret belongs to root, and the pod's own group reads it.
            forbidden = 0o037 if status.st_uid == 0 and os.geteuid() else 0o077
            if stat.S_ISREG(mode) and mode & forbidden:
                raise UnusableArguments(
                    f"key file `{path}` is accessible to other users (mode "
                    f"{stat.S_IMODE(mode):04o}); run `chmod 600 {path}`"
                )
            text = file.read(MAX_KEY + 1).decode("ascii").strip()
    except OSError as error:
        raise UnusableArguments(f"key file `{path}` can't be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UnusableArguments(f"key file `{path}` does not contain a key") from None
    if not text.startswith("{"):  # no key begins with it
        return text
    try:  # `first-start.json`, which the control API writes at its first start
        return str(json.loads(text)["admin_key"])
    except (ValueError, KeyError):
        raise UnusableArguments(f"`{path}` is JSON without an `admin_key`") from None


def _usable(text: str, origin: str) -> str:
    """`text`, if it can be sent as a header: a line break would inject another header."""
    if not text or len(text) > MAX_KEY or not text.isascii() or not text.isprintable():
        raise UnusableArguments(f"{origin} does not contain a key")
    return text


def _tls(options: argparse.Namespace, ca: str | None) -> ssl.SSLContext:
    import ssl  # imported late: a command over plain HTTP starts faster without it

    if options.cert_key and not options.cert:
        raise UnusableArguments("--cert-key needs --cert")
    try:
        context = ssl.create_default_context(cafile=ca)
        if options.cert:
            context.load_cert_chain(options.cert, options.cert_key)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or str(error)
        raise UnusableArguments(
            f"--ca (SLUICE_CA), --cert and --cert-key can't be used: {why}"
        ) from error
    return context
