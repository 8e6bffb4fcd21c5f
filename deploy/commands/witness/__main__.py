"""The command line of `sluice witness`. No other module of the witness reads the environment or the
clock.

    sluice witness --config FILE           serve
    sluice witness --config FILE --key     print the verifier key, and end
    sluice witness --example               print a configuration to start with

Exit codes: 0 after a stop on which the requests under way were finished, 1 after a failure, 2 for
an unusable configuration or unusable arguments.
"""

import logging
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

import uvloop

from deploy.commands.witness.configuration import load
from deploy.commands.witness.serve import Prepared, prepared, serve
from policies.ground.addresses import ListenAddress
from policies.ground.clock import Clock
from policies.ground.process import json_logging
from policies.ground.process.secret_file import UnusableFile
from policies.ground.process.sockets import CannotListen
from policies.ground.process.tls_files import UnusableTls
from policies.ground.settings import SettingsError

EXAMPLE = """\
# Where checkpoints are submitted. Without tls_cert and tls_key, keep it behind a TLS proxy.
listen: 127.0.0.1:8720
# Your name, as it stands in every signature: a URL without a scheme, by custom.
name: witness.example.com/sluice
# Both are made at the first start. Keep the key secret, and never restore an old copy of the state.
key_file: witness.key
state: witness-state
# The logs you witness. Each origin is a line of its own: a log that begins again as `<log>#1` is
# refused until you add that line, so ask its operator first why it had to.
logs: []
#  - origin: tenant-a/0123
#    key: tenant-a/0123+<key id>+<key>
"""
_log = logging.getLogger("sluice.witness")


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    if options.example:
        print(EXAMPLE, end="")
        return 0
    clock = Clock(lambda: time.time_ns() // 1000, time.monotonic)
    level, log_format = (os.environ.get(f"SLUICE_LOG_{name}") for name in ("LEVEL", "FORMAT"))
    json_logging.configure("sluice", level or "info", clock.now, form=log_format)
    json_logging.catch_all("sluice")
    try:
        with prepared(load(options.config), clock) as ready:
            # On standard output, whatever the log's level: the logs' operators need it.
            print(ready.witness.key.text(), flush=True)
            return 0 if options.key else _serve(ready)
    except SettingsError as error:
        for complaint in error.complaints:
            _log.error("%s", complaint)
        return 2
    except (UnusableFile, UnusableTls) as error:
        _log.error("%s", error)
        return 2


def _serve(ready: Prepared) -> int:
    scheme = "http" if ready.tls is None else "https"

    def announce(address: ListenAddress) -> None:
        _log.info("witness listens on %s://%s", scheme, address)

    try:
        uvloop.run(serve(ready, announce))
    except CannotListen as error:
        _log.critical("the witness ends: %s", error)
        return 1
    return 0


def _options(arguments: list[str]) -> Namespace:
    description = "Witnesses transparency logs: cosigns what continues what it cosigned before."
    parser = ArgumentParser(prog="sluice witness", description=description)
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--config", metavar="FILE", type=Path, help="the configuration, YAML")
    wanted.add_argument(
        "--example", action="store_true", help="print a configuration to start with, and end"
    )
    parser.add_argument(
        "--key", action="store_true", help="make the key if absent, print its public form, and end"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
