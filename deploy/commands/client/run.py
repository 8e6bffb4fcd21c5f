"""Runs one of the operator's commands and reports errors.

The exit code is 0 for success, 1 for a failure, 2 for unusable arguments or files, and 130 after
Ctrl-C. Knows the errors of all commands, but not what a command does.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from importlib import import_module

from deploy.commands.client.client import Client
from deploy.commands.client.output import Output, safe
from policies.ground.process.api_client import ServiceUnusable, UnusableArguments, connect

INTERRUPTED = 130


def run(noun: str, arguments: list[str], environ: Mapping[str, str]) -> int:
    """Run `sluice <noun> <arguments>`. Returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"sluice {noun}")
    # Import only the module of this command, so that it starts quickly.
    import_module(f"deploy.commands.client.{noun.replace('-', '_')}").add_arguments(parser)
    options = parser.parse_args(arguments)
    _tolerate_any_text()
    try:
        api = connect(
            environ, options.url, options.key_file, options.ca, options.cert, options.cert_key
        )
        client = Client(api, Output(as_json=options.json, environ=environ))
        code: int = options.run(client, options)
        sys.stdout.flush()  # where a reader that has gone is noticed below
        return code
    except UnusableArguments as problem:
        return _fail(str(problem), 2)
    except ServiceUnusable as problem:
        return _fail(str(problem), 1)
    except KeyboardInterrupt:
        return INTERRUPTED  # 128 + SIGINT, the code that a shell reports
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Python flushes its buffer once more at
        # exit, which would fail too, so that output goes to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _fail(text: str, code: int) -> int:
    first, *rest = text.splitlines()
    # Line by line, since `safe` would escape the line breaks.
    print("\n".join(safe(line) for line in (f"sluice: {first}", *rest)), file=sys.stderr)
    return code


def _tolerate_any_text() -> None:
    """Make the output print an escape for each character that its encoding lacks."""
    # Otherwise a single name in another script would end a list with a traceback.
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
