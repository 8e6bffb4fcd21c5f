"""The arguments of `sluice verify`. Opens nothing but key files."""

import argparse
from collections.abc import Callable
from typing import Any

from policies.trail.proofs.signed_note import COSIGNATURE, ED25519, VerifierKey
from policies.trail.verdict.outcome import Unusable
from policies.trail.verdict.trusted_keys import parse_key

MAX_NOTE = 256 * 1024
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
    made.add_argument(
        "--key", action="append", default=[], type=key_argument(ED25519), metavar="KEY",
        help="a key that signs the log: a verifier key, its public key in base64, or a file with "
        "one; may be repeated. Without one, the result is unsigned",
    )  # fmt: skip
    made.add_argument(
        "--checkpoint", action="append", default=[], type=_note, metavar="FILE",
        help="a checkpoint from elsewhere that the log must contain; may be repeated",
    )  # fmt: skip
    made.add_argument(
        "--witness", action="append", default=[], type=key_argument(COSIGNATURE), metavar="KEY",
        help="the verifier key of a witness; may be repeated",
    )  # fmt: skip
    made.add_argument(
        "--quorum", type=_count(1, 1000), metavar="N",
        help="cosignatures that the latest checkpoint needs (default: one of each --witness)",
    )  # fmt: skip
    made.add_argument(
        "--recompute", action="store_true",
        help="derive every decision again from its recorded facts and policies",
    )  # fmt: skip
    made.add_argument(
        "--jobs", type=_count(1, MOST_JOBS), default=1, metavar="N",
        help="processes that verify a file (default 1)",
    )  # fmt: skip
    made.add_argument("--json", action="store_true", help="print JSON instead of text")
    _add_database(made)
    _add_remote(made)
    return made


def _add_database(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("a database, read without the service")
    group.add_argument(
        "--database", metavar="URL", help="as SLUICE_DATABASE_URL; opened to read only"
    )
    group.add_argument("--store", metavar="URL", help="as SLUICE_CHECKPOINT_STORE")
    group.add_argument("--log", metavar="TENANT", help="verify the log of this tenant only")


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
    if options.quorum is not None and options.quorum > len(set(options.witness)):
        raise Unusable(f"--quorum {options.quorum} is more than there are witnesses (--witness)")
    if options.recompute and options.file is None:
        raise Unusable("--recompute needs a FILE: export the log first")
    return options


def key_argument(type_: int) -> Callable[[str], VerifierKey]:
    """An argument's type: a key of a log, or of a witness."""

    def read(text: str) -> VerifierKey:
        try:
            return parse_key(text, type_)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def _note(name: str) -> str:
    try:
        with open(name, encoding="utf-8", newline="") as file:
            return file.read(MAX_NOTE + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise argparse.ArgumentTypeError(f"`{name}` can't be read: {why}") from error


def _count(least: int, most: int) -> Callable[[str], Any]:
    def read(text: str) -> int:
        # The text is cut for `int`, whose time grows with the square of the length.
        if not (text.isascii() and text.isdecimal() and least <= int(text[:9]) <= most):
            raise argparse.ArgumentTypeError(f"`{text:.40}` is not a number from {least} to {most}")
        return int(text)

    return read
