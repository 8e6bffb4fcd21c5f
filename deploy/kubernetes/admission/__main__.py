"""The command line of the admission webhook, and the only place that reads the environment, the
clock and the system's random source for it. `sluice inject` has a command line of its own, in
`manifests`.

    python -m deploy.kubernetes.admission serve    answer the API server's reviews; also `sluice
    webhook`

Exit codes: 0 after a stop on which the reviews under way were finished, 1 after a failure, 2 for
unusable settings or arguments.
"""

import logging
import os
import sys
import time
from argparse import ArgumentParser

import uvloop

from deploy.kubernetes.admission.injector import TemplateInjector
from deploy.kubernetes.admission.serve import Dependencies, Ports, serve
from deploy.kubernetes.admission.settings import WEBHOOK, WebhookSettings, defaults, read
from policies.ground.clock import Clock
from policies.ground.ids import RandomBuffer
from policies.ground.process import json_logging
from policies.ground.process.settings_reader import PREFIX
from policies.ground.process.sockets import CannotListen
from policies.ground.settings import SettingsError, entry, sentences

SWITCH_SECONDS = 0.0005
_log = logging.getLogger("sluice.webhook")


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["serve"]:
        return _serve(arguments[1:])
    print("usage: python -m deploy.kubernetes.admission serve", file=sys.stderr)
    return 2


class _Parser(ArgumentParser):
    def format_help(self) -> str:
        """Return the help text with the settings and their defaults. The settings are added only
        when help is printed, since their descriptions are read from a source file."""
        texts, values = sentences(WebhookSettings), defaults()
        lines = [
            entry(PREFIX + WEBHOOK + name.upper(), values[name], text)
            for name, text in texts.items()
        ]
        return (
            f"{super().format_help()}\nsettings, read from the environment [default]:\n"
            + "".join(f"{line}\n" for line in lines)
        )


def _serve(arguments: list[str]) -> int:
    description = "Runs the admission webhook, which puts the sidecar into pods."
    _Parser(prog="sluice webhook", description=description).parse_args(arguments)
    clock = Clock(lambda: time.time_ns() // 1000, time.monotonic)
    level, log_format = (os.environ.get(f"SLUICE_LOG_{name}") for name in ("LEVEL", "FORMAT"))
    json_logging.configure("sluice", level or "info", clock.now, form=log_format)
    json_logging.catch_all("sluice")
    try:
        settings = read(os.environ)
        injector = TemplateInjector(settings.template)
    except SettingsError as error:
        for complaint in error.complaints:
            _log.error("%s", complaint)
        return 2
    # Large reviews are read in a thread. By default it would hold up the others for 5 ms each time
    # that their loop has waited for a socket.
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        uvloop.run(
            serve(settings, injector, Dependencies(clock, RandomBuffer(os.urandom)), _announce)
        )
    except CannotListen as error:
        _log.critical("the webhook ends: %s", error)
        return 1
    except BaseExceptionGroup as group:
        unexpected = group.split(CannotListen)[1]
        if unexpected is not None:
            raise
        _log.critical("the webhook ends: %s", group.exceptions[0])
        return 1
    return 0


def _announce(ports: Ports) -> None:
    if ports.reviews is None:
        _log.info("health and metrics on http://%s", ports.health)
    else:
        _log.info("webhook listens on https://%s", ports.reviews)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
