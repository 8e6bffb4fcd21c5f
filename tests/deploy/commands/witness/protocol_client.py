"""A log, as a client of the witness protocol: written from the texts of C2SP `signed-note`,
`tlog-checkpoint`, `tlog-cosignature` and `tlog-witness` and of RFC 6962. Shares no code with the
project."""

import base64
import hashlib
import http.client
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


class Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes


def leaf(data: bytes) -> bytes:
    return hashlib.sha256(b"\0" + data).digest()


def _power_below(n: int) -> int:
    k = 1
    while k * 2 < n:
        k *= 2
    return k


def mth(leaves: list[bytes]) -> bytes:
    """RFC 6962, 2.1, over hashed leaves."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    k = _power_below(len(leaves))
    return hashlib.sha256(b"\1" + mth(leaves[:k]) + mth(leaves[k:])).digest()


def proof(m: int, leaves: list[bytes]) -> list[bytes]:
    """RFC 6962, 2.1.2: PROOF(m, D[n])."""
    return [] if m in (0, len(leaves)) else _subproof(m, leaves, True)


def _subproof(m: int, leaves: list[bytes], whole: bool) -> list[bytes]:
    n = len(leaves)
    if m == n:
        return [] if whole else [mth(leaves)]
    k = _power_below(n)
    if m <= k:
        return [*_subproof(m, leaves[:k], whole), mth(leaves[k:])]
    return [*_subproof(m - k, leaves[k:], False), mth(leaves[:k])]


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


class Log:
    """A log with a key of its own, named like its origin."""

    def __init__(self, origin: str, entries: int = 0, salt: str = "") -> None:
        self.origin = origin
        self.key = Ed25519PrivateKey.generate()
        self.leaves = [leaf(f"{salt}{n}".encode()) for n in range(entries)]

    def rewritten(self, entries: int) -> "Log":
        """Another content, signed with the same key: an insider's rewriting."""
        made = Log(self.origin, entries, "another")
        made.key = self.key
        return made

    @property
    def verifier_key(self) -> str:
        return self.typed_key(1)

    def typed_key(self, type_: int) -> str:
        """The log's key, or the same bytes as a key of another type."""
        typed = bytes([type_]) + self.key.public_key().public_bytes_raw()
        return f"{self.origin}+{self._id(typed).hex()}+{b64(typed)}"

    def text(self, size: int) -> str:
        return f"{self.origin}\n{size}\n{b64(mth(self.leaves[:size]))}\n"

    def note(self, size: int, text: str | None = None) -> str:
        text = self.text(size) if text is None else text
        id_ = self._id(b"\1" + self.key.public_key().public_bytes_raw())
        return f"{text}\n— {self.origin} {b64(id_ + self.key.sign(text.encode()))}\n"

    def body(self, old: int, size: int) -> bytes:
        lines = [f"old {old}", *map(b64, proof(old, self.leaves[:size])), "", self.note(size)]
        return "\n".join(lines).encode()

    def _id(self, key: bytes) -> bytes:
        return hashlib.sha256(self.origin.encode() + b"\n" + key).digest()[:4]


def submit(port: int, body: bytes, method: str = "POST") -> Answer:
    return call(port, "/add-checkpoint", body, method)


def call(port: int, path: str, body: bytes = b"", method: str = "GET") -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers.get("Content-Type", ""), answer.read())
    finally:
        connection.close()


def cosigned_at(text: str, lines: bytes, verifier_key: str) -> int:
    """The time of the one cosignature in `lines`, which must verify."""
    name, id_, key = verifier_key.split("+", 2)
    typed = base64.b64decode(key)
    assert typed[0] == 4
    assert hashlib.sha256(name.encode() + b"\n" + typed).digest()[:4].hex() == id_
    (line,) = lines.decode().removesuffix("\n").split("\n")
    mark, named, signature = line.split(" ")
    raw = base64.b64decode(signature, validate=True)
    assert (mark, named, raw[:4].hex(), len(raw)) == ("—", name, id_, 4 + 8 + 64)
    at = int.from_bytes(raw[4:12], "big")
    message = f"cosignature/v1\ntime {at}\n{text}".encode()
    Ed25519PublicKey.from_public_bytes(typed[1:]).verify(raw[12:], message)
    return at
