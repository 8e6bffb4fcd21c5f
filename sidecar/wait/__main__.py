"""`python -m sidecar.wait`: returns when the sidecar on this host is ready. For the `postStart`
hook of an ordinary container: the kubelet starts the containers behind it once the hook has
returned.

Imports nothing of the sidecar, since both share the container's memory. Exit code 0 when the
sidecar is ready; 1 when it is not ready in time, with the last reason on standard error.
"""

from __future__ import annotations

import argparse
import json
import ssl
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection

PAUSE_SECONDS = 0.2
TRY_SECONDS = 2.0
"""The seconds that the sidecar may take for one answer."""
MAX_ANSWER = 65_536


def main() -> int:
    arguments = _parser().parse_args()
    deadline = time.monotonic() + arguments.seconds
    problem = wait(arguments.port, deadline, time.monotonic, https=arguments.https)
    if problem:
        print(f"not ready within {arguments.seconds} s: {problem}", file=sys.stderr)
    return 1 if problem else 0


def wait(port: int, deadline: float, now: Callable[[], float], *, https: bool = False) -> str:
    """Ask until the sidecar is ready, and return an empty text. If it is not ready by `deadline`,
    return the last reason."""
    while True:
        problem = ask(port, https=https)
        if not problem or now() + PAUSE_SECONDS >= deadline:
            return problem
        time.sleep(PAUSE_SECONDS)


def ask(port: int, *, https: bool = False) -> str:
    """Return the reason why the sidecar is not ready; empty if it is ready."""
    connection = _connection(port, https)
    try:
        connection.request("GET", "/health/ready")
        response = connection.getresponse()
        body = response.read(MAX_ANSWER)
    except (OSError, HTTPException) as error:
        return f"port {port}: {error}"
    finally:
        connection.close()
    return "" if response.status == 200 else _reason(body) or f"status {response.status}"


def _connection(port: int, https: bool) -> HTTPConnection:
    if not https:
        return HTTPConnection("127.0.0.1", port, timeout=TRY_SECONDS)
    # Nothing secret is sent, and the certificate is for another name than this host's loopback.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return HTTPSConnection("127.0.0.1", port, timeout=TRY_SECONDS, context=context)


def _reason(body: bytes) -> str:
    """Return the message of the error in `body`; empty if `body` is not such an error."""
    try:
        error = json.loads(body)
        return str(error.get("details") or error["message"])
    except (ValueError, KeyError, AttributeError):
        return ""  # another program's answer: its status says enough


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sluice wait", description="Returns when the sidecar on this host is ready."
    )
    parser.add_argument("--port", type=int, default=8710, help="the port of its API [8710]")
    parser.add_argument("--https", action="store_true", help="the API speaks TLS (`listen_tls`)")
    parser.add_argument("--seconds", type=int, default=120, help="how long to wait [120]")
    return parser


if __name__ == "__main__":
    sys.exit(main())
