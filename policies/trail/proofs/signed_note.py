"""Reads, signs and verifies signed notes (C2SP `signed-note`). A note is a text with the signatures
of one or more keys under it, those of witnesses included.

    <text, ends with a newline>

    — <name> <base64(key id ‖ signature)>
    …

Also verifier keys, `<name>+<hex key id>+<base64(type ‖ public key)>`, and the check if a log's
private key was given where its public key is expected; no message shows such a key.

A cosignature (C2SP `tlog-cosignature`, `cosignature/v1`) is a witness's signature. It states that
at some time the checkpoint was the largest that the witness knew of the log, and consistent with
those before. It is an 8-byte time and an Ed25519 signature over that time and the note's text. A
witness checks consistency before it signs; this module doesn't, and knows nothing of what the text
says.
"""

import hashlib
from collections.abc import Collection, Iterable
from typing import NamedTuple

from policies.ground.canonical import NotCanonical, b64, unb64
from policies.ground.signing import Signer, verify

ED25519 = 0x01
"""The type byte of a key whose signatures are Ed25519 over the text itself."""
COSIGNATURE = 0x04
"""The type byte of a witness's key, whose signatures are timestamped cosignatures."""
_PUBLIC_BYTES = {ED25519: 32, COSIGNATURE: 32}
_KEY_ID = 4
MAX_NOTE = 256 * 1024
"""The most bytes that a note may have. The largest known signatures have 5 KB, and verifiers must
accept 16 signatures."""
MAX_SIGNATURES = 100


class BadNote(ValueError):
    """the note can't be read, or is not signed by the key that should have signed it"""


class BadKey(ValueError):
    """the verifier key can't be read"""


class Signature(NamedTuple):
    """A signature line of a note: the key's name, its 4-byte id, and the signature's bytes."""

    name: str
    key_id: bytes
    signature: bytes

    def line(self) -> str:
        return f"— {self.name} {b64(self.key_id + self.signature)}\n"


class Note(NamedTuple):
    """A parsed note. `text` is what is signed, with its final newline. Nothing is verified yet:
    don't use the text before a signature has been verified."""

    text: str
    signatures: tuple[Signature, ...]

    def render(self) -> str:
        """Return the note as text. Raises `BadNote` if `parse` would refuse it."""
        note = f"{self.text}\n{''.join(each.line() for each in self.signatures)}"
        if parse(note) != self:
            raise BadNote("the text or a signature can't be written as a note")
        return note


class VerifierKey(NamedTuple):
    """A public key by which notes are verified: its name, the type of its signatures (`ED25519` or
    `COSIGNATURE`), and its bytes."""

    name: str
    type: int
    public: bytes

    @property
    def key_id(self) -> bytes:
        """The 4 bytes that precede each signature by this key. They only help to find the key:
        anyone can make another key with the same id."""
        return key_id(self.name, self.public, self.type)

    def text(self) -> str:
        """Return the key in the C2SP form `<name>+<hex key id>+<base64(type ‖ public key)>`."""
        return f"{self.name}+{self.key_id.hex()}+{b64(bytes([self.type]) + self.public)}"

    @classmethod
    def parse(cls, text: str) -> "VerifierKey":
        """Parse a key in the form that `text` returns. Raises `BadKey` for any other spelling, for
        an id that does not match the key, and for a type other than `ED25519` and `COSIGNATURE`."""
        # Base64 contains `+`; a name and an id don't.
        name, _, rest = text.partition("+")
        _, _, encoded = rest.partition("+")
        try:
            raw = unb64(encoded)
            # Before anything is hashed: a lone surrogate has no bytes.
            name.encode()
        except ValueError as error:
            raise BadKey(f"`{text[:120]!r}` is not a verifier key: {error}") from error
        if not raw or len(raw) - 1 != _PUBLIC_BYTES.get(raw[0]) or not is_name(name):
            raise BadKey(
                f"`{text[:120]}` is not a verifier key: expected"
                " `<name>+<key id>+<base64>` of an Ed25519 key (type 1 or 4)"
            )
        key = cls(name, raw[0], raw[1:])
        if key.text() != text:
            raise BadKey(f"`{text[:120]}` is not a verifier key: its key id is not the key's")
        return key


def is_name(name: str) -> bool:
    """Return whether a key may have this name: it is not empty, and has no Unicode space, no `+`
    and no control character."""
    return bool(name) and not any(
        character == "+" or character < " " or character.isspace() for character in name
    )


def key_id(name: str, public: bytes, type_: int = ED25519) -> bytes:
    """Return the 4 bytes that identify a key: the first of SHA-256 over its name, type and public
    key."""
    return hashlib.sha256(name.encode() + b"\n" + bytes([type_]) + public).digest()[:_KEY_ID]


def sign(text: str, name: str, signer: Signer) -> Signature:
    """Return the Ed25519 signature of `text` by the key called `name`."""
    return Signature(name, key_id(name, signer.public), signer.sign(text.encode()))


def parse(note: str) -> Note:
    """Parse a note, without verifying it. Raises `BadNote` unless it is a text, an empty line and 1
    to `MAX_SIGNATURES` signature lines, all as `render` writes them, without control characters
    other than newline."""
    # A character has at least one byte, so this bounds the work before any of it.
    if len(note) > MAX_NOTE:
        raise BadNote(f"the note has more than {MAX_NOTE} bytes")
    try:
        size = len(note.encode())
    except UnicodeEncodeError as error:
        raise BadNote("the note is not UTF-8") from error
    # The text may contain empty lines: the last one separates it from the signatures.
    text, apart, signed = note.rpartition("\n\n")
    if size > MAX_NOTE or not apart or not signed.endswith("\n"):
        raise BadNote("the note is not a text, an empty line and signatures")
    if any(character < " " and character != "\n" for character in note):
        raise BadNote("the note has a control character")
    # Not `splitlines`, which also splits at characters that a note may contain.
    lines = signed[:-1].split("\n")
    if len(lines) > MAX_SIGNATURES:
        raise BadNote(f"the note has more than {MAX_SIGNATURES} signatures")
    return Note(text + "\n", tuple(map(_signature, lines)))


def joined(note: str, others: Iterable[str]) -> str:
    """Return the note with more signatures: those that the notes in `others` have by further keys
    under the same text. Others that can't be read are left out. Verifies nothing. Raises `BadNote`
    if `note` can't be read."""
    known = parse(note)
    # One line a key: a wrong line of a key whose line is here would spoil the note.
    lines = {(each.name, each.key_id): each for each in known.signatures}
    for each in others:
        try:
            other = parse(each)
        except BadNote:
            continue
        if other.text == known.text:
            lines = {(line.name, line.key_id): line for line in other.signatures} | lines
    # The log's own signature stays the first.
    added = [line for line in lines.values() if line not in known.signatures]
    return Note(known.text, (*known.signatures, *added)[:MAX_SIGNATURES]).render()


def verified(note: Note, keys: Collection[VerifierKey]) -> list[Signature]:
    """Verify the Ed25519 signatures by `keys`, and return them, one for each key that signed, in
    the note's order. Signatures by other keys are ignored. Raises `BadNote` if one of `keys` has a
    wrong signature, even if another one is right, as the specification advises."""
    found = []
    for signature, key in matches(note, keys, ED25519):
        if not verify(key.public, signature.signature, note.text.encode()):
            raise BadNote(f"the signature by `{key.name}` does not match the note's text")
        found.append(signature)
    return found


def matches(
    note: Note, keys: Iterable[VerifierKey], type_: int
) -> list[tuple[Signature, VerifierKey]]:
    """Return the signatures that name a key of type `type_` among `keys`, each with that key. A
    repeated line counts once. Verifies nothing."""
    # Two keys with one name and id are possible, if only by intent; then the note must verify with
    # both.
    known = [(key, key.key_id) for key in dict.fromkeys(keys) if key.type == type_]
    return [
        (signature, key)
        for signature in dict.fromkeys(note.signatures)
        for key, id_ in known
        if (signature.name, signature.key_id) == (key.name, id_)
    ]


def _signature(line: str) -> Signature:
    mark, _, rest = line.partition(" ")
    name, _, encoded = rest.partition(" ")
    try:
        raw = unb64(encoded)
    except NotCanonical as error:
        raise BadNote("a signature line of the note is not base64") from error
    if mark != "—" or not is_name(name) or len(raw) <= _KEY_ID:
        raise BadNote("a line below the note's text is not a signature")
    return Signature(name, raw[:_KEY_ID], raw[_KEY_ID:])


MAX_TIME = 2**63 - 1
_TIME_BYTES = 8
_SIGNATURE_BYTES = 64


class Cosignature(NamedTuple):
    """A witness's cosignature, verified: the witness's key, and the time of signing in seconds
    since 1970 UTC."""

    key: VerifierKey
    signed_at: int


def cosigned_message(text: str, signed_at: int) -> bytes:
    """Return the bytes that a witness signs to cosign a note's text at the time `signed_at`, in
    seconds since 1970 UTC."""
    return f"cosignature/v1\ntime {signed_at}\n{text}".encode()


def cosign(text: str, name: str, signer: Signer, signed_at: int) -> Signature:
    """Return the signature line that the witness `name` adds to a note. `signed_at` is in seconds
    since 1970 UTC. Raises `ValueError` for a time outside of the format's range."""
    if not 0 <= signed_at <= MAX_TIME:
        raise ValueError(f"{signed_at} is not a time of a cosignature")
    signature = signed_at.to_bytes(_TIME_BYTES, "big") + signer.sign(
        cosigned_message(text, signed_at)
    )
    return Signature(name, key_id(name, signer.public, COSIGNATURE), signature)


def verified_cosignatures(note: Note, keys: Collection[VerifierKey]) -> list[Cosignature]:
    """Verify the cosignatures by `keys`, and return the latest of each key, in the order of `keys`.
    Cosignatures by other keys are ignored. Raises `BadNote` if one of `keys` has a wrong
    cosignature."""
    latest: dict[VerifierKey, int] = {}
    for signature, key in matches(note, keys, COSIGNATURE):
        signed_at = _signed_at(note.text, signature, key)
        latest[key] = max(signed_at, latest.get(key, 0))
    return [Cosignature(key, latest[key]) for key in dict.fromkeys(keys) if key in latest]


def _signed_at(text: str, signature: Signature, key: VerifierKey) -> int:
    raw = signature.signature
    signed_at = int.from_bytes(raw[:_TIME_BYTES], "big")
    if (
        len(raw) != _TIME_BYTES + _SIGNATURE_BYTES
        or signed_at > MAX_TIME
        or not verify(key.public, raw[_TIME_BYTES:], cosigned_message(text, signed_at))
    ):
        raise BadNote(f"the cosignature by `{key.name}` does not match the note's text")
    return signed_at


NOT_PUBLIC = (
    "the key given is the log's private key, which must stay with the service: who reads it can "
    "sign another log. Give the public key, `log.pub`, which `sluice log-key` prints. If the "
    "private key has left its host, replace it with `sluice rotate-key`"
)


def is_public_key(text: str) -> bool:
    """Return whether `text` is the base64 of 32 bytes, as a public key is. The seed of a private
    key has the same form: `is_private_half` tells them apart."""
    try:
        return len(unb64(text)) == 32
    except NotCanonical:
        return False


def is_private_key(text: str) -> bool:
    """Return whether `text` has the form of a private key: PEM, or the file `log.key` after a
    rotation, whose first line is the seed and each further line an endorsement."""
    first, _, rest = text.partition("\n")
    return "PRIVATE KEY-----" in first or (is_public_key(first.strip()) and rest.startswith("{"))


def is_private_half(given: Iterable[bytes], publics: Collection[bytes]) -> bool:
    """Return whether one of the keys in `given` (32 bytes each) is the private half of a public key
    in `publics`."""
    return not {Signer(each).public for each in given}.isdisjoint(publics)
