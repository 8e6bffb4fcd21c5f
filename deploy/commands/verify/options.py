"""The arguments of `sluice verify`. Opens nothing but key files."""

import argparse

from policies.trail.verdict.arguments import add_database, add_trust, check_quorum, count
from policies.trail.verdict.outcome import Unusable

MOST_JOBS = 256

_DESCRIPTION = """\
Verifies an audit log without trusting the service that wrote it: an export (FILE, or - for
standard input; gzip and zstd are recognised), a database (--database), or what is new in a running
service (--url)."""
_EPILOG = """\
Exit codes: 0 all holds; 1 findings; 2 unusable arguments, file, database or service, or a
--checkpoint that lies outside of what was verified."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="sluice verify", description=_DESCRIPTION, epilog=_EPILOG)
    made.add_argument(
        "file", nargs="?", metavar="FILE",
        help="an export, or the report.json of `sluice report`; - is standard input",
    )  # fmt: skip
    add_trust(made)
    made.add_argument(
        "--recompute", action="store_true",
        help="derive every decision again from its recorded facts and policies",
    )  # fmt: skip
    made.add_argument(
        "--jobs", type=count(1, MOST_JOBS), default=1, metavar="N",
        help="processes that verify a file (default 1)",
    )  # fmt: skip
    made.add_argument("--json", action="store_true", help="print JSON instead of text")
    add_database(made)
    _add_remote(made)
    return made


def _add_remote(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("a running service")
    group.add_argument("--url", metavar="URL", help="address of the control API")
    group.add_argument("--key-file", metavar="FILE", help="a file with an API key of scope read")
    group.add_argument(
        "--ca", metavar="FILE", help="certificate authority to trust, for https (SLUICE_CA)"
    )
    group.add_argument(
        "--state", metavar="FILE", help="what was verified so far; written after each success"
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options. Raises `Unusable` if they contradict one another; `SystemExit` like argparse."""
    made = parser()
    options = made.parse_args(arguments)
    sources = [name for name in ("file", "database", "url") if getattr(options, name) is not None]
    if len(sources) != 1:
        raise Unusable("give one of FILE, --database URL and --url URL; --help explains them")
    for name, source in (("store", "database"), ("log", "database"), ("key_file", "url"),
                         ("state", "url"), ("ca", "url")):  # fmt: skip
        if getattr(options, name) is not None and source not in sources:
            raise Unusable(f"--{name.replace('_', '-')} belongs to --{source}")
    if options.url is not None and not (options.key_file and options.state):
        raise Unusable("--url needs --key-file FILE and --state FILE")
    check_quorum(options)
    if options.recompute and options.file is None:
        raise Unusable("--recompute needs a FILE: export the log first")
    return options
