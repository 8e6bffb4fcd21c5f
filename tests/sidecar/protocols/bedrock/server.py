"""A minimal Bedrock, since no real server can be downloaded. It verifies signatures, searches its
documents by the API's filters, pages, keeps sessions, and streams in AWS's event encoding; it
generates nothing. It follows botocore's model, by which boto3 parses its responses.
"""

import asyncio
import json
import re
import struct
from binascii import crc32
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.sidecar.protocols.aws import ACCESS, SECRET, fault
from tests.support.scripted_source import Seen, answer

OPEN, SHUT = "KBOPEN0001", "KBSHUT0001"
LEVELS = ("low", "medium", "high", "critical", None, "unheard", 7, ["low"])


def documents(base: str) -> list[dict[str, Any]]:
    """One of each level, one without a level, and some with invalid ones."""
    return [
        {
            "content": {"type": "TEXT", "text": f"text of {base} {number}"},
            "location": {"type": "S3", "s3Location": {"uri": f"s3://docs/{number}"}},
            "score": 0.5,
            "metadata": {"number": number, **({} if level is None else {"level": level})},
        }
        for number, level in enumerate(LEVELS)
    ]


def meets(condition: dict[str, Any] | None, metadata: dict[str, Any]) -> bool:
    """Whether metadata satisfy a filter of the API."""
    if condition is None:
        return True
    [(operator, operand)] = condition.items()
    if operator in ("andAll", "orAll"):
        assert len(operand) >= 2
        found = [meets(each, metadata) for each in operand]
        return all(found) if operator == "andAll" else any(found)
    value = metadata.get(operand["key"])
    if operator == "equals":
        return bool(value == operand["value"])
    assert operator == "in", operator
    return value in operand["value"]


def frame(kind: str, payload: bytes, message: str = "event") -> bytes:
    """One message of `application/vnd.amazon.eventstream`."""
    names = {
        ":message-type": message, ":event-type": kind, ":content-type": "application/json",
    }  # fmt: skip
    heads = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value))
        + value.encode()
        for name, value in names.items()
    )  # fmt: skip
    prelude = struct.pack("!II", len(heads) + len(payload) + 16, len(heads))
    whole = prelude + struct.pack("!I", crc32(prelude)) + heads + payload
    return whole + struct.pack("!I", crc32(whole))


@dataclass
class Bedrock:
    """The script of a data source."""

    faults: list[str] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    """The bodies that arrived."""
    obeys: bool = True
    """Whether it keeps to a filter."""
    going: asyncio.Event = field(default_factory=asyncio.Event)
    """A stream waits for it after its first event."""

    async def __call__(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        wrong = fault(seen, "bedrock", {ACCESS: SECRET})
        if wrong is not None:
            self.faults.append(wrong)
            await answer("HTTP/1.1 403 Forbidden", b"{}")(seen, writer)
            return
        body = json.loads(seen.body) if seen.body else {}
        self.asked.append(body)
        path = unquote(seen.target.partition("?")[0])
        for form, handler in HANDLERS:
            found = re.fullmatch(form, path)
            if found:
                await handler(self, seen, writer, body, *found.groups())
                return
        await self._json(seen, writer, {})

    async def retrieve(
        self, seen: Seen, writer: asyncio.StreamWriter, body: dict[str, Any], base: str
    ) -> None:
        search: dict[str, Any] = {}
        for each in body.get("retrievalConfiguration", {}).values():
            search = each
        found = [
            each
            for each in documents(base)
            if not self.obeys or meets(search.get("filter"), each["metadata"])
        ]
        start = int(body.get("nextToken", "page-0").removeprefix("page-"))
        stop = start + search.get("numberOfResults", 100)
        response: dict[str, Any] = {"retrievalResults": found[start:stop]}
        if stop < len(found):
            response["nextToken"] = f"page-{stop}"
        await self._json(seen, writer, response)

    async def generate(
        self, seen: Seen, writer: asyncio.StreamWriter, body: dict[str, Any], stream: str
    ) -> None:
        session = body.get("sessionId", "session-1")
        if not stream:
            await self._json(seen, writer, {"output": {"text": "text"}, "sessionId": session})
            return
        head = f"x-amzn-bedrock-knowledge-base-session-id: {session}-s"
        await self._stream(writer, [("output", {"text": "text of"})] * 2, head)

    async def agent(self, _seen: Seen, writer: asyncio.StreamWriter, *_of: Any) -> None:
        await self._stream(
            writer,
            [("chunk", {"bytes": "dGV4dA=="})] * 2,
            "x-amz-bedrock-agent-session-id: s",
            "x-amzn-bedrock-agent-content-type: application/json",
        )

    async def agentic(self, _seen: Seen, writer: asyncio.StreamWriter, *_of: Any) -> None:
        await self._stream(writer, [("responseEvent", {"text": "text"})] * 2)

    async def flow(self, _seen: Seen, writer: asyncio.StreamWriter, *_of: Any) -> None:
        done = ("flowCompletionEvent", {"completionReason": "INPUT_REQUIRED"})
        await self._stream(writer, [done] * 2, "x-amz-bedrock-flow-execution-id: run-1")

    async def started(self, seen: Seen, writer: asyncio.StreamWriter, *_of: Any) -> None:
        arn = "arn:aws:bedrock:eu-central-1:1:flow/FLOW000001/alias/ALIAS00001/execution/exec-1"
        await self._json(seen, writer, {"executionArn": arn})

    async def document(self, seen: Seen, writer: asyncio.StreamWriter, *_of: Any) -> None:
        await self._json(seen, writer, {"mimeType": "text/plain", "presignedUrl": "https://x/"})

    async def _stream(
        self, writer: asyncio.StreamWriter, events: list[tuple[str, Any]], *heads: str
    ) -> None:
        kind = "Content-Type: application/vnd.amazon.eventstream"
        lines = ["HTTP/1.1 200 OK", kind, "Transfer-Encoding: chunked", *heads]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
        for number, (event, payload) in enumerate(events):
            if number:
                await self.going.wait()
            data = frame(event, json.dumps(payload).encode())
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async def _json(
        self, seen: Seen, writer: asyncio.StreamWriter, response: dict[str, Any]
    ) -> None:
        body = json.dumps(response).encode()
        await answer("HTTP/1.1 200 OK", body, "Content-Type: application/json")(seen, writer)


HANDLERS: list[tuple[str, Any]] = [
    (r"/knowledgebases/([^/]+)/retrieve", Bedrock.retrieve),
    (r"/retrieveAndGenerate(Stream)?", Bedrock.generate),
    (r"/agenticRetrieveStream", Bedrock.agentic),
    (r"/knowledgebases/.*/documents/([^/]+)/content", Bedrock.document),
    (r"/agents/.*/sessions/([^/]+)/text", Bedrock.agent),
    (r"/agents/([^/]+)", Bedrock.agent),
    (r"/flows/[^/]+/aliases/([^/]+)", Bedrock.flow),
    (r"/flows/[^/]+/aliases/([^/]+)/executions", Bedrock.started),
]
