"""The arguments of `sluice report`. Opens nothing but key files."""

import argparse

from control_api.verifier.options import key_argument
from control_api.verifier.outcome import Unusable
from control_api.verifier.report.selection import Asked
from policies.ground.typed_time import ACCEPTED, UnreadableTime, read_time
from policies.trail.proofs.signed_note import ED25519

_WHAT = ("session", "agent", "user", "event")
_DESCRIPTION = """\
Writes what an export of the audit trail says of one session, agent, user or event: DIR/report.html
to read and print, and DIR/report.json with proofs, which `sluice verify` checks by itself. The
export is verified first."""
_EPILOG = """\
Exit codes: 0 written; 1 the export does not hold, nothing is written; 2 unusable arguments or
file."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="sluice report", description=_DESCRIPTION, epilog=_EPILOG)
    made.add_argument("file", metavar="FILE", help="an export; gzip and zstd are recognised")
    group = made.add_mutually_exclusive_group(required=True)
    for name in _WHAT:
        group.add_argument(f"--{name}", metavar="ID", help=f"report on this {name}")
    made.add_argument(
        "--from", dest="begin", metavar="TIME",
        help=f"only from this time on: {ACCEPTED}",
    )  # fmt: skip
    made.add_argument("--to", dest="until", metavar="TIME", help="only before this time")
    made.add_argument(
        "--key", action="append", default=[], type=key_argument(ED25519), metavar="KEY",
        help="a key that signs the log, as for `sluice verify`; may be repeated",
    )  # fmt: skip
    made.add_argument(
        "-o", "--output", required=True, metavar="DIR",
        help="the folder for report.html and report.json; made if absent",
    )  # fmt: skip
    return made


def parse(arguments: list[str], now: int) -> tuple[argparse.Namespace, Asked]:
    """The options, and what they ask for. `now` is in microseconds. Raises `Unusable`; `SystemExit`
    like argparse."""
    options = parser().parse_args(arguments)
    by = next(name for name in _WHAT if getattr(options, name) is not None)
    begin, until = _time("--from", options.begin, now), _time("--to", options.until, now)
    if begin is not None and until is not None and begin >= until:
        raise Unusable("--from is not before --to")
    if options.file == "-":
        raise Unusable("FILE is read more than once, so it can't be standard input")
    return options, Asked(by, getattr(options, by), begin, until)


def _time(option: str, text: str | None, now: int) -> int | None:
    try:
        return None if text is None else read_time(text, now)
    except UnreadableTime as error:
        raise Unusable(f"{option}: {error}") from error
