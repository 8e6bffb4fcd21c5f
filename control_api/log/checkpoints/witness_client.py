"""Asks one witness for its cosignature of a checkpoint (C2SP `tlog-witness`, `add-checkpoint`).

One request, bounded in time and bytes. Knows the protocol's answers; verifies the cosignature by
the witness's key. Doesn't know which sizes the log has.
"""

from enum import StrEnum
from typing import NamedTuple

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar

from control_api.security.egress import WitnessAddress
from policies.ground.canonical import b64
from policies.trail.checkpoint import BadNote
from policies.trail.proofs import signed_note
from policies.trail.proofs.nodes import MAX_SIZE
from policies.trail.proofs.signed_note import Signature

TOTAL_SECONDS = 10.0
CONNECT_SECONDS = 3.0
MAX_ANSWER = 64 * 1024
FUTURE_SECONDS = 300
"""How far a witness's clock may be ahead of ours."""


class Refusal(StrEnum):
    """Why there is no cosignature."""

    unreachable = "unreachable"
    """No answer in time, or 5xx."""
    unknown = "unknown"
    """404: the witness's operator has not configured this origin."""
    unsigned = "unsigned"
    """403: the witness has another key of the log."""
    inconsistent = "inconsistent"
    """422: the checkpoint does not continue what the witness has cosigned. The log was rewritten,
    or the witness errs."""
    ahead = "ahead"
    """409: the witness has cosigned more entries than the log has."""
    unusable = "unusable"
    """The answer is not one of the protocol, or its cosignature does not verify."""


_BY_STATUS = {403: Refusal.unsigned, 404: Refusal.unknown, 422: Refusal.inconsistent}


class NotCosigned(Exception):
    """the witness has not cosigned the checkpoint"""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


class OtherSize(NamedTuple):
    """What the witness cosigned last, from which the proof has to lead."""

    size: int


class WitnessClient:
    """The requests to one witness. `session` comes from `open_session`."""

    def __init__(self, address: WitnessAddress, session: ClientSession) -> None:
        self.key = address.key
        self._url = f"{address.url}/add-checkpoint"
        self._session = session

    async def submit(
        self, note: str, old: int, proof: list[bytes], now: int
    ) -> Signature | OtherSize:
        """The cosignature of `note`, verified, or the size that the witness expects instead of
        `old`. `now` is in seconds. Raises `NotCosigned`."""
        body = "\n".join([f"old {old}", *map(b64, proof), "", note]).encode()
        try:
            # Redirects lead to an address that the operator has not chosen.
            async with self._session.post(self._url, data=body, allow_redirects=False) as answer:
                raw = b""
                while chunk := await answer.content.readany():
                    raw += chunk
                    if len(raw) > MAX_ANSWER:
                        raise NotCosigned(Refusal.unusable, f"more than {MAX_ANSWER} bytes")
                return self._read(answer.status, raw, note, now)
        except TimeoutError:
            raise NotCosigned(
                Refusal.unreachable, f"no answer within {TOTAL_SECONDS:g} s"
            ) from None
        except (ClientError, OSError) as error:
            raise NotCosigned(Refusal.unreachable, str(error) or type(error).__name__) from error

    def _read(self, status: int, raw: bytes, note: str, now: int) -> Signature | OtherSize:
        if status == 200:
            return self._verified(raw, note, now)
        if status == 409:
            return _size(raw)
        if status >= 500:
            raise NotCosigned(Refusal.unreachable, f"it answered {status}")
        refusal = _BY_STATUS.get(status, Refusal.unusable)
        raise NotCosigned(refusal, f"it answered {status}: {_message(raw)}")

    def _verified(self, raw: bytes, note: str, now: int) -> Signature:
        """The witness's own line. Lines of other keys are ignored, as the protocol asks."""
        try:
            added = signed_note.parse(note + raw.decode())
            if added.text != signed_note.parse(note).text:
                raise BadNote("the answer is not made of signature lines")
            found = signed_note.verified_cosignatures(added, [self.key])
        except (BadNote, UnicodeDecodeError) as error:
            raise NotCosigned(Refusal.unusable, str(error)) from error
        if not found:
            raise NotCosigned(Refusal.unusable, f"no cosignature by `{self.key.name}`")
        if not 0 < found[0].signed_at <= now + FUTURE_SECONDS:
            raise NotCosigned(
                Refusal.unusable, f"the cosignature's time is {found[0].signed_at}, now it is {now}"
            )
        lines = signed_note.matches(added, [self.key], self.key.type)
        return lines[-1][0]


def open_session() -> ClientSession:
    """A session for every witness: no proxy from the environment, no cookies, and connections that
    stay open, as the protocol asks."""
    return ClientSession(
        cookie_jar=DummyCookieJar(),
        trust_env=False,
        headers={"User-Agent": "sluice", "Content-Type": "application/octet-stream"},
        timeout=ClientTimeout(total=TOTAL_SECONDS, sock_connect=CONNECT_SECONDS),
    )


def _size(raw: bytes) -> OtherSize:
    text = raw[:32].removesuffix(b"\n")
    size = int(text) if text.isdigit() else MAX_SIZE + 1
    if size > MAX_SIZE or str(size).encode() + b"\n" != raw:
        raise NotCosigned(Refusal.unusable, f"it answered 409 without a size: {raw[:32]!r}")
    return OtherSize(size)


def _message(raw: bytes) -> str:
    """The message of an answer: `sluice witness` sends JSON, others plain text."""
    try:
        return repr(orjson.loads(raw)["message"])[:200]
    except (ValueError, LookupError, TypeError):
        return repr(raw[:200])
