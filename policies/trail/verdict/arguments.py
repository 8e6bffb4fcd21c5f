"""The arguments that name the trusted signers and the checkpoints that a log must contain. They are
the same for an export, a database and a running service."""

import argparse
from collections.abc import Callable
from typing import Any

from policies.trail.proofs.signed_note import COSIGNATURE, ED25519, VerifierKey
from policies.trail.verdict.outcome import Unusable
from policies.trail.verdict.trusted_keys import parse_key

MAX_NOTE = 256 * 1024


def add_trust(made: argparse.ArgumentParser) -> None:
    """Add `--key`, `--checkpoint`, `--witness` and `--quorum`."""
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
        "--quorum", type=count(1, 1000), metavar="N",
        help="cosignatures that the latest checkpoint needs (default: one of each --witness)",
    )  # fmt: skip


def add_database(made: argparse.ArgumentParser) -> None:
    """Add `--database`, `--store` and `--log`."""
    group = made.add_argument_group("a database, read without the service")
    group.add_argument(
        "--database", metavar="URL", help="as SLUICE_DATABASE_URL; opened to read only"
    )
    group.add_argument("--store", metavar="URL", help="as SLUICE_CHECKPOINT_STORE")
    group.add_argument("--log", metavar="TENANT", help="verify the log of this tenant only")


def check_quorum(options: argparse.Namespace) -> None:
    """Raise `Unusable` if `--quorum` can never be met."""
    if options.quorum is not None and options.quorum > len(set(options.witness)):
        raise Unusable(f"--quorum {options.quorum} is more than there are witnesses (--witness)")


def key_argument(type_: int) -> Callable[[str], VerifierKey]:
    """Parse an argument: a key of a log, or of a witness."""

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


def count(least: int, most: int) -> Callable[[str], Any]:
    """Return the type of an argument that is a whole number from `least` to `most`."""

    def read(text: str) -> int:
        # The text is cut for `int`, whose time grows with the square of the length.
        if not (text.isascii() and text.isdecimal() and least <= int(text[:9]) <= most):
            raise argparse.ArgumentTypeError(f"`{text:.40}` is not a number from {least} to {most}")
        return int(text)

    return read
