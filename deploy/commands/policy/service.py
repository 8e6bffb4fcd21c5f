"""How a command asks a running service, with the options and variables of the operator's commands
(`deploy/commands/client`).

    add_service(parser)            --url, --key-file, --ca
    api = connect(options)
    api.ask("POST", "/v1/policies/diff", body={"policies": […]})

`options.environ` is the environment, which `__main__` sets. A refusal is `RequestRefused`, whose
`details` a command may read.
"""

import argparse
import sys
from urllib.parse import urlsplit

from policies.ground.process.api_client import (
    RemoteApi,
    ServiceUnusable,
    authority,
    read_key,
    usable_key,
)

URL = "http://127.0.0.1:8700"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NO_KEY = "name a file with an API key: --key-file or SLUICE_KEY_FILE"


def add_service(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a service."""
    group = parser.add_argument_group("a running service")
    group.add_argument("--url", help=f"address of the control API (SLUICE_URL; default {URL})")
    # No option for the key itself: every user of the machine can read a process's arguments.
    group.add_argument(
        "--key-file",
        metavar="FILE",
        help="a file with an API key, or the control API's first-start.json (SLUICE_KEY_FILE)",
    )
    group.add_argument(
        "--ca", metavar="FILE", help="certificate authority to trust, for https (SLUICE_CA)"
    )


def names_service(options: argparse.Namespace) -> bool:
    """Whether the arguments or the environment name a service."""
    return bool(options.url or options.environ.get("SLUICE_URL"))


def connect(options: argparse.Namespace) -> RemoteApi:
    """The service that the arguments, else the environment name; else the one at the usual address
    of this host. Raises `ServiceUnusable`, never with a key."""
    environ = options.environ
    url = options.url or environ.get("SLUICE_URL") or URL
    # Files come first: every child process inherits a key in the environment.
    if name := options.key_file or environ.get("SLUICE_KEY_FILE"):
        key = read_key(name)
    elif text := environ.get("SLUICE_API_KEY"):
        key = usable_key(text.strip(), "SLUICE_API_KEY")
    else:
        raise ServiceUnusable(_NO_KEY)
    api = RemoteApi(url, key, authority(options.ca, url, environ))
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        sys.stderr.write(f"sluice policy: warning: sending the key unencrypted to `{url}`\n")
    return api
