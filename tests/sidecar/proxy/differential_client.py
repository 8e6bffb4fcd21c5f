"""Sends one request byte by byte and reads one response as it came, for the differential test: a
client that checks nothing. It accepts more than a browser would. A response that is cut short is
a result, and says so."""

import asyncio
from dataclasses import dataclass

SECONDS = 10.0


@dataclass(frozen=True)
class Result:
    """An answer: `fields` as they were written, `body` without its chunks. `whole` is whether it
    came to the end that its framing states."""

    status: int
    reason: bytes
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes
    whole: bool

    def value(self, name: bytes) -> bytes | None:
        """Of the first field called `name`, in lower case."""
        for each, value in self.fields:
            if each.lower() == name:
                return value
        return None


async def exchange(port: int, data: bytes, *, head_only: bool, ends: bool) -> Result | None:
    """The final answer to `data`; None where the connection ends, or 10 s pass, without one that
    can be read. `head_only` is for an answer to HEAD, `ends` says that nothing follows `data`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        async with asyncio.timeout(SECONDS):
            writer.write(data)
            if ends:
                writer.write_eof()
            return await _answer(reader, head_only=head_only)
    except (TimeoutError, OSError, ValueError, IndexError, asyncio.IncompleteReadError):
        return None
    finally:
        writer.transport.abort()


async def _answer(reader: asyncio.StreamReader, *, head_only: bool) -> Result:
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        line, *lines = head[:-4].split(b"\r\n")
        _, status, *reason = line.split(b" ", 2)
        fields = tuple(_field(each) for each in lines)
        number = int(status)
        if number >= 200 or number == 101:
            break
    empty = head_only or number in (101, 204, 304)
    body, whole = (b"", True) if empty else await _body(reader, fields)
    return Result(number, reason[0] if reason else b"", fields, body, whole)


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon:
        raise ValueError("a line of the head is no field")
    return name, value.strip(b" \t")


async def _body(
    reader: asyncio.StreamReader, fields: tuple[tuple[bytes, bytes], ...]
) -> tuple[bytes, bool]:
    read = {name.lower(): value for name, value in fields}
    parts: list[bytes] = []
    try:
        if read.get(b"transfer-encoding", b"").lower() == b"chunked":
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                parts.append(await reader.readexactly(size))
                await reader.readexactly(2)
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass  # trailers
        elif b"content-length" in read:
            parts.append(await reader.readexactly(int(read[b"content-length"])))
        else:
            parts.append(await reader.read(-1))
    except asyncio.IncompleteReadError as short:
        return b"".join(parts) + short.partial, False
    except OSError:
        return b"".join(parts), False
    return b"".join(parts), True
