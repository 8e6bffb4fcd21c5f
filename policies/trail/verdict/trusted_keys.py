"""Decides whose signatures count: those of the pinned keys, and those of the keys to which they
lead by endorsements. Matches keys by their bytes, never by their name.

Also adds the command-line arguments that name the trusted signers and the checkpoints that a log
must contain. They are the same for an export, a database and a running service.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from policies.ground.canonical import b64, unb64
from policies.ground.signing import Endorsement
from policies.trail.proofs import signed_note
from policies.trail.proofs.signed_note import (
    COSIGNATURE,
    ED25519,
    NOT_PUBLIC,
    BadKey,
    Note,
    VerifierKey,
    is_private_half,
    is_private_key,
    is_public_key,
)
from policies.trail.verdict.outcome import Unusable

MAX_KEYS = 1000
MAX_KEY_TEXT = 4096


def parse_key(text: str, type_: int = ED25519) -> VerifierKey:
    """Parse the value of an option that names a key: a verifier key of C2SP `signed-note`, the
    base64 of a public key, or the name of a file that holds one of these. Raises `ValueError`."""
    words = text.strip()
    path = Path(words)
    try:
        if path.is_file():
            with path.open(encoding="utf-8") as file:
                words = file.read(MAX_KEY_TEXT).strip()
    except (OSError, ValueError) as error:
        raise ValueError(f"`{text:.120}` can't be read: {error}") from error
    if is_private_key(words):
        raise ValueError(NOT_PUBLIC)
    if "+" in words and words.count("+") >= 2:
        try:
            key = VerifierKey.parse(words)
        except BadKey as error:
            if not is_public_key(words):
                raise ValueError(str(error)) from error
        else:
            if key.type != type_:
                kind = "a log's key" if type_ == ED25519 else "a witness's key"
                raise ValueError(f"`{text:.120}` is not {kind}: it has type {key.type}")
            return key
    if type_ == COSIGNATURE:
        raise ValueError(f"`{text:.120}` is not a verifier key `<name>+<key id>+<base64>`")
    if not is_public_key(words):
        raise ValueError(
            f"`{text:.120}` is neither a verifier key `<name>+<key id>+<base64>`, nor a public key "
            "in base64, nor a file with one of them"
        )
    return VerifierKey("", ED25519, unb64(words))


class TrustedKeys:
    """The keys whose signatures count for one log. `pinned` are those that the user trusts.
    `claimed` are the keys that a file or a server says signed the log, the oldest first, each with
    its endorsement by the one before."""

    def __init__(self, pinned: Sequence[VerifierKey], claimed: Sequence[dict[str, Any]]) -> None:
        """Follow the endorsements from the pinned keys. Raises `Unusable` if a pinned key is the
        private half of a claimed one."""
        self.pinned = tuple(dict.fromkeys(key.public for key in pinned))
        chain, self.claimed = _parsed(claimed[:MAX_KEYS])
        if is_private_half(self.pinned, self.claimed):
            raise Unusable(NOT_PUBLIC)
        # Each key that signs now, and how it came to be trusted.
        self.reasons: dict[bytes, str] = dict.fromkeys(self.pinned, "pinned")
        self.former: dict[bytes, str] = {}
        for public in self.pinned:
            self._follow(public, chain)

    def _follow(self, pinned: bytes, chain: Sequence[Endorsement]) -> None:
        """Trust the keys that `pinned` endorses, one after another, and note the keys that led to
        it. Both are one chain, since each key has one successor."""
        current = pinned
        for each in chain:
            if each.former == current and each.holds():
                current = each.next
                self.reasons.setdefault(current, f"endorsed by the pinned key {short(pinned)}")
        current = pinned
        for each in reversed(chain):
            if each.next == current and each.holds():
                current = each.former
                self.former.setdefault(current, f"succeeded by the pinned key {short(pinned)}")

    def signer(self, note: Note, origin: str) -> tuple[bytes, str] | None:
        """Return the trusted key that signed `note`, and why it is trusted; None if no trusted key
        did. Raises `BadNote` if a signature by a trusted key is wrong."""
        return self._signer(note, origin, self.reasons)

    def former_signer(self, note: Note, origin: str) -> tuple[bytes, str] | None:
        """Return which predecessor of a pinned key signed `note`, in the form of `signer`. Former
        keys may have been stolen without harm to their owner, so their signatures prove nothing,
        but are no fault either."""
        return self._signer(note, origin, self.former)

    def claimed_signer(self, note: Note, origin: str) -> bytes | None:
        """Return which claimed key signed `note`; None if none did. Raises `BadNote` as `signer`
        does."""
        found = self._signer(note, origin, dict.fromkeys(self.claimed, ""))
        return None if found is None else found[0]

    def _signer(self, note: Note, origin: str, keys: dict[bytes, str]) -> tuple[bytes, str] | None:
        # Every key is tried, not only up to the first that signed: a wrong signature by any of them
        # makes the note unusable. A pinned key's own name does not matter: a log may be renamed,
        # its key stays.
        signers = [
            (public, reason)
            for public, reason in keys.items()
            if signed_note.verified(note, [VerifierKey(origin, ED25519, public)])
        ]
        return next(iter(signers), None)


def witnessed(note: Note, witnesses: Sequence[VerifierKey]) -> list[signed_note.Cosignature]:
    """Return the cosignatures by the pinned witnesses. Raises `BadNote` if one is wrong."""
    return signed_note.verified_cosignatures(note, witnesses)


def short(public: bytes) -> str:
    """Return a public key in base64, as the summary shows it."""
    return b64(public)


def _parsed(claimed: Sequence[dict[str, Any]]) -> tuple[list[Endorsement], list[bytes]]:
    chain, publics = [], []
    for each in claimed:
        try:
            publics.append(VerifierKey.parse(each["key"]).public)
            if each.get("endorsement") is not None:
                chain.append(Endorsement.from_wire(each["endorsement"]))
        except (ValueError, TypeError, LookupError):
            continue  # a claim that can't be read leads to no key
    return chain, publics


MAX_NOTE = 256 * 1024


def add_trust(made: argparse.ArgumentParser) -> None:
    """Add the options `--key`, `--checkpoint`, `--witness` and `--quorum` to a command's parser."""
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
    """Add the options `--database`, `--store` and `--log` to a command's parser."""
    group = made.add_argument_group("a database, read without the service")
    group.add_argument(
        "--database", metavar="URL", help="as SLUICE_DATABASE_URL; opened to read only"
    )
    group.add_argument("--store", metavar="URL", help="as SLUICE_CHECKPOINT_STORE")
    group.add_argument("--log", metavar="TENANT", help="verify the log of this tenant only")


def check_quorum(options: argparse.Namespace) -> None:
    """Raise `Unusable` if `--quorum` asks for more cosignatures than there are witnesses."""
    if options.quorum is not None and options.quorum > len(set(options.witness)):
        raise Unusable(f"--quorum {options.quorum} is more than there are witnesses (--witness)")


def key_argument(type_: int) -> Callable[[str], VerifierKey]:
    """Return an `argparse` type for the key of a log or of a witness, depending on the signature
    type `type_`."""

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
    """Return an `argparse` type for a whole number from `least` to `most`."""

    def read(text: str) -> int:
        # The text is cut for `int`, whose time grows with the square of the length.
        if not (text.isascii() and text.isdecimal() and least <= int(text[:9]) <= most):
            raise argparse.ArgumentTypeError(f"`{text:.40}` is not a number from {least} to {most}")
        return int(text)

    return read
