"""Runs one of the operator's commands, and reports what went wrong in words.

Exit code 0 when it was done, 1 for a failure, 2 for arguments or key files that can't be used, 130
after Ctrl-C. Knows the errors, and no command's meaning.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from importlib import import_module

from deploy.client.client import Client
from deploy.client.connection import ApiUnreachable, RequestRefused
from deploy.client.credentials import Credential, UnusableCredentials, connect
from deploy.client.output import Output, safe

INTERRUPTED = 130


def run(noun: str, arguments: list[str], environ: Mapping[str, str]) -> int:
    """Runs `sluice <noun> <arguments>`; answers the exit code."""
    parser = argparse.ArgumentParser(prog=f"sluice {noun}")
    # Only the one that is asked for is imported: each file is one noun.
    import_module(f"deploy.client.{noun}").declare(parser)
    chosen = parser.parse_args(arguments)
    _tolerate_any_text()
    try:
        api, key = connect(chosen, environ)
        client = Client(api, Output(as_json=chosen.json, environ=environ))
        try:
            code: int = chosen.run(client, chosen)
        except RequestRefused as refused:
            return _fail(explain(refused, key), 1)
        return code
    except UnusableCredentials as problem:
        return _fail(str(problem), 2)
    except ApiUnreachable as problem:
        return _fail(str(problem), 1)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # `| head` has enough. What Python still holds back would fail again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def explain(refused: RequestRefused, key: Credential) -> str:
    """What the API said, and what to do about it."""
    lines = [f"{refused.status} {refused.reason}: {refused.message}"]
    lines += [f"  {line}" for line in refused.details.splitlines()]
    if refused.request_id:
        lines.append(f"  request id: {refused.request_id}")
    if (advice := _advice(refused, key)) is not None:
        lines.append(f"  {advice}")
    return "\n".join(lines)


def _advice(refused: RequestRefused, key: Credential) -> str | None:
    match refused.status:
        case 401 if key.value is None:
            return "name a file with your API key by --key-file or SLUICE_KEY_FILE"
        case 401 | 403:
            return (
                f"{key.origin} was sent: looking needs one of scope `read` or `admin`, changing "
                "one of scope `admin`, neither revoked nor expired"
            )
        case 429 | 503 if refused.retry_after:
            return f"try again in {refused.retry_after} s"
    return None


def _fail(text: str, code: int) -> int:
    first, *rest = text.splitlines()
    print("\n".join(safe(line) for line in (f"sluice: {first}", *rest)), file=sys.stderr)
    return code


def _tolerate_any_text() -> None:
    """A terminal that lacks a character shows its escape."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
