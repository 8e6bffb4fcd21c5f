"""Verifies AWS signatures independently of botocore, from AWS's description: a strict data source
in front of a lenient one (moto verifies nothing).

The sidecar's credentials are in a file; the data source doesn't know the agent's.
"""

import asyncio
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

from tests.support.scripted_source import Seen, answer

ACCESS, SECRET = "AKIASIDECARSOWN00000", "sidecar+secret/with=signs"
REGION = "eu-central-1"
_FORM = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/,]+)/(\d{8})/([^/,]+)/([^/,]+)/aws4_request, "
    r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})"
)
STREAMING = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"


def credentials_file(
    folder: Path, access: str = ACCESS, secret: str = SECRET, more: str = ""
) -> Path:
    """The sidecar's credentials, in the format of AWS's own file."""
    path = folder / "credentials"
    path.write_text(
        f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n{more}"
    )
    return path


def fault(seen: Seen, service: str, secrets: dict[str, str], region: str = REGION) -> str | None:
    """What is wrong with the signature of a request; None if it is valid."""
    stated = seen.values("authorization")
    found = _FORM.fullmatch(stated[0]) if len(stated) == 1 else None
    if found is None:
        return f"no signature of the form known: {stated}"
    access, day, where, what, names, signature = found.groups()
    if (where, what) != (region, service) or access not in secrets:
        return f"the scope is {access}/{where}/{what}"
    signed = names.split(";")
    must = {"host"} | {name.lower() for name, _ in seen.fields if name.lower().startswith("x-amz-")}
    if not must <= set(signed) or signed != sorted(signed):
        return f"not signed: {must - set(signed)}"
    lines = []
    for name in signed:
        [value] = seen.values(name)
        lines.append(f"{name}:{' '.join(value.split())}\n")
    hashed = seen.values("x-amz-content-sha256") or [hashlib.sha256(seen.body).hexdigest()]
    if hashed[0] not in ("UNSIGNED-PAYLOAD", STREAMING, hashlib.sha256(seen.body).hexdigest()):
        return "the body is not the one that was signed"
    path, _, query = seen.target.partition("?")
    # S3 decodes and re-encodes the path; other services escape the sent path once more.
    path = quote(unquote(path) if service == "s3" else path, safe="/-._~")
    canonical = "\n".join(
        [seen.line.split(" ")[0], path, _query(query), "".join(lines), names, hashed[0]]
    )
    [date] = seen.values("x-amz-date")
    scope = f"{day}/{region}/{service}/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{secrets[access]}".encode()
    for part in (day, region, service, "aws4_request", text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    if not date.startswith(day) or key.hex() != signature:
        return f"the signature does not match:\n{canonical}"
    return None


def _query(query: str) -> str:
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    each = [(quote(unquote(a), safe="-._~"), quote(unquote(b), safe="-._~")) for a, _, b in pairs]
    return "&".join(f"{name}={value}" for name, value in sorted(each))


@dataclass
class Verifying:
    """The script of a data source that verifies a request, then relays it to the server at
    `port`."""

    port: int
    service: str
    secrets: dict[str, str] = field(default_factory=lambda: {ACCESS: SECRET})
    faults: list[str] = field(default_factory=list)
    passed: list[Seen] = field(default_factory=list)

    async def __call__(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        wrong = fault(seen, self.service, self.secrets)
        if wrong is not None:
            self.faults.append(wrong)
            await answer("HTTP/1.1 403 Forbidden", b"<Error/>")(seen, writer)
            return
        self.passed.append(seen)
        reader, there = await asyncio.open_connection("127.0.0.1", self.port)
        lines = [seen.head.split(b"\r\n", 1)[0], b"Connection: close"]
        unframed = ("connection", "transfer-encoding", "content-length")
        fields = [(name, value) for name, value in seen.fields if name.lower() not in unframed]
        lines += [f"{name}: {value}".encode("latin-1") for name, value in fields]
        lines.append(b"Content-Length: %d" % len(seen.body))
        there.write(b"\r\n".join(lines) + b"\r\n\r\n" + seen.body)
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            there.close()
            writer.close()
