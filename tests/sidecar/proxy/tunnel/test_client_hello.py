"""A TLS hello is read completely or not at all, however it is cut into records and segments. One
that two readers could read in two ways is refused."""

import itertools
import ssl
import time
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.errors import Malformed
from sidecar.proxy.tunnel import client_hello
from sidecar.proxy.tunnel.client_hello import LONGEST, MOST_RECORDS, Hello, HelloReader

SERVER_NAME, KEY_SHARE, PADDING, ENCRYPTED = 0, 51, 21, 0xFE0D


def parse(data: bytes) -> Hello | None:
    """The hello in `data`, which arrives at once."""
    return HelloReader().feed(data)


GREASE = (0x0A0A, 0x1A1A, 0xFAFA)


def spoken(name: str | None, protocols: int = 0) -> bytes:
    """What OpenSSL says first; `protocols` of 255 bytes each make it larger."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if name is None:
        context.check_hostname = False
    if protocols:
        context.set_alpn_protocols([f"{each:0255d}" for each in range(protocols)])
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def sized(data: bytes, size: int) -> bytes:
    """`data` behind its length, of `size` bytes."""
    return len(data).to_bytes(size) + data


def server_name(*names: bytes, kind: int = 0) -> bytes:
    return sized(b"".join(bytes([kind]) + sized(name, 2) for name in names), 2)


def message(
    *extensions: tuple[int, bytes],
    session: bytes = bytes(32),
    suites: bytes = b"\x13\x01",
    methods: bytes = b"\x00",
    more: bytes = b"",
) -> bytes:
    """A hello that we put together."""
    listed = b"".join(kind.to_bytes(2) + sized(data, 2) for kind, data in extensions)
    body = b"\x03\x03" + bytes(32) + sized(session, 1) + sized(suites, 2) + sized(methods, 1)
    return b"\x01" + sized(body + sized(listed, 2) + more, 3)


def records(whole: bytes, *sizes: int, kind: int = 0x16) -> bytes:
    """`whole` in records of `sizes`, and one of what is left."""
    made = b""
    for size in (*sizes, len(whole)):
        part, whole = whole[:size], whole[size:]
        made += bytes([kind, 3, 1]) + sized(part, 2) if part else b""
    return made


def hello(*extensions: tuple[int, bytes]) -> bytes:
    return records(message(*extensions))


KB = server_name(b"kb.test")


@pytest.mark.parametrize("name", ["kb.test", "a_b.kb.test", "xn--bcher-kva.example", "localhost"])
def test_a_hello_of_openssl_yields_its_server_name(name: str) -> None:
    assert parse(spoken(name)) == Hello(name, False)


def test_a_hello_without_a_server_name_is_accepted() -> None:
    assert parse(spoken(None)) == Hello(None, False)
    assert parse(spoken("127.0.0.1")) == Hello(None, False)
    assert parse(hello()) == Hello(None, False)


def test_a_hello_without_extensions_names_no_server() -> None:
    body = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x00\x2f" + b"\x01\x00"
    assert parse(records(b"\x01" + sized(body, 3))) == Hello(None, False)


@pytest.mark.parametrize("protocols", [0, 8])
def test_a_hello_is_the_same_wherever_it_is_split(protocols: int) -> None:
    whole = spoken("kb.test", protocols)
    for end in range(len(whole)):
        assert parse(whole[:end]) is None
    assert parse(whole) == Hello("kb.test", False)
    # Early data, or whatever follows it in records of its own, is not the hello's matter.
    assert parse(whole + b"\x17\x03\x03\x00\x01\x00") == Hello("kb.test", False)


def test_a_hello_may_be_larger_than_one_record() -> None:
    whole = spoken("kb.test", 100)
    assert len(whole) > 1 << 14
    assert parse(whole[:17000]) is None
    assert parse(whole) == Hello("kb.test", False)


def test_a_hello_of_post_quantum_size_is_read() -> None:
    share = sized(b"\x11\xec" + sized(bytes(1216), 2), 2)
    whole = message((KEY_SHARE, share), (SERVER_NAME, KB), (PADDING, bytes(600)))
    assert parse(records(whole, 1, 1, 2, 500, 1200)) == Hello("kb.test", False)


@given(st.lists(st.integers(1, 200), max_size=12), st.integers(0, 3000))
def test_splitting_into_records_changes_nothing(sizes: list[int], end: int) -> None:
    whole = records(message((PADDING, bytes(300)), (SERVER_NAME, KB)), *sizes)
    assert parse(whole) == Hello("kb.test", False)
    if end < len(whole):
        assert parse(whole[:end]) is None


def test_an_encrypted_hello_is_seen() -> None:
    assert parse(hello((SERVER_NAME, KB), (ENCRYPTED, bytes(200)))) == Hello("kb.test", True)
    assert parse(hello((0xFFCE, b""))) == Hello(None, True)


def test_values_reserved_to_be_ignored_are_ignored() -> None:
    greased = [(each, b"\x00" * at) for at, each in enumerate(GREASE)]
    assert parse(hello(*greased, (SERVER_NAME, KB))) == Hello("kb.test", False)


@pytest.mark.parametrize(
    ("said", "read"), [(b"KB.Test", "kb.test"), (b"kb.test.", "kb.test"), (b"a" * 63, "a" * 63)]
)
def test_a_name_has_one_form(said: bytes, read: str) -> None:
    assert parse(hello((SERVER_NAME, server_name(said)))) == Hello(read, False)


NAMES = {
    "none": sized(b"", 2),
    "no list": b"",
    "empty": server_name(b""),
    "two": server_name(b"kb.test", b"other.test"),
    "one twice": server_name(b"kb.test", b"kb.test"),
    "of another kind": server_name(b"kb.test", kind=1),
    "NUL": server_name(b"kb.test\x00.other.test"),
    "control": server_name(b"kb.test\n"),
    "space": server_name(b"kb.test "),
    "not ASCII": server_name("bücher.example".encode()),
    "latin": server_name("bücher.example".encode("latin-1")),
    "IPv4": server_name(b"127.0.0.1"),
    "IPv4 otherwise": server_name(b"0x7f.1"),
    "IPv6": server_name(b"::1"),
    "IPv6 in brackets": server_name(b"[::1]"),
    "port": server_name(b"kb.test:443"),
    "wild": server_name(b"*.test"),
    "two dots": server_name(b"kb..test"),
    "long": server_name(b"a." * 127 + b"a"),
    "more than it says": KB + b"\x00",
    "less than it says": KB[:-1],
    "less inside": sized(b"\x00" + (8).to_bytes(2) + b"kb.test", 2),
}


@pytest.mark.parametrize("case", NAMES)
def test_an_invalid_name_is_refused(case: str) -> None:
    with pytest.raises(Malformed):
        parse(hello((SERVER_NAME, NAMES[case])))


SOUND = message((SERVER_NAME, KB))
BROKEN: dict[str, Iterable[bytes]] = {
    "an extension twice": [hello((SERVER_NAME, KB), (SERVER_NAME, KB))],
    "an unknown one twice": [hello((SERVER_NAME, KB), (0x0A0A, b""), (0x0A0A, b""))],
    "no suite": [records(message(suites=b""))],
    "half a suite": [records(message(suites=b"\x13\x01\x13"))],
    "no compression": [records(message(methods=b""))],
    "a session too long": [records(message(session=bytes(33)))],
    "more behind it": [records(message(more=b"\x00"))],
    "another message in its record": [records(SOUND + b"\x01\x00\x00\x00")],
    "a server's": [records(b"\x02" + SOUND[1:])],
    "not a handshake": [records(SOUND, kind=kind) for kind in (0x14, 0x15, 0x17, 0x80, 0x00)],
    "SSL 2": [b"\x16\x02\x00\x00\x05" + SOUND],
    "an empty record": [b"\x16\x03\x01\x00\x00" + records(SOUND)],
    "a record too long": [b"\x16\x03\x01" + (16385).to_bytes(2)],
    "an announced giant": [b"\x16\x03\x01\x00\x04\x01\xff\xff\xff"],
    "no length": [records(b"\x01" + sized(b"", 3)), records(b"\x01" + sized(SOUND[4:60], 3))],
}


@pytest.mark.parametrize("case", BROKEN)
def test_bytes_that_are_not_a_hello_are_refused(case: str) -> None:
    for data in BROKEN[case]:
        with pytest.raises(Malformed):
            parse(data)


def test_every_record_must_be_a_handshake() -> None:
    first = records(SOUND[:10])
    with pytest.raises(Malformed):
        parse(first + records(SOUND[10:], kind=0x17))


def test_a_hello_may_have_only_a_limited_length() -> None:
    size = (1 << 14) - 1
    endless = records(b"\x01" + (LONGEST - 4).to_bytes(3) + bytes(LONGEST), *[size] * 4)
    assert parse(endless[: LONGEST - 1]) is None
    with pytest.raises(Malformed):
        parse(endless[:LONGEST])


def test_a_hello_may_have_only_a_limited_number_of_records() -> None:
    # The rest is refused at the head of the first record that is too many.
    whole = records(SOUND, *[1] * (MOST_RECORDS - 1))
    assert parse(whole) == Hello("kb.test", False)
    split = records(SOUND, *[1] * MOST_RECORDS)
    assert parse(split[: 6 * MOST_RECORDS + 4]) is None
    with pytest.raises(Malformed, match="more than 16 records"):
        parse(split[: 6 * MOST_RECORDS + 5])


class _Counted(bytearray):
    """A buffer that counts the bytes that are copied into it, out of it, and moved in it."""

    work = 0

    def __init__(self, *given: bytes | bytearray) -> None:
        super().__init__(*given)
        _Counted.work += len(self)

    def __iadd__(self, more: bytes) -> "_Counted":  # type: ignore[override]
        _Counted.work += len(more)
        return super().__iadd__(more)

    def __add__(self, more: bytes) -> "_Counted":  # type: ignore[override]
        return _Counted(super().__add__(more))

    def __bytes__(self) -> bytes:
        _Counted.work += len(self)
        return b"".join((self,))

    def __getitem__(self, which: Any) -> Any:
        found = super().__getitem__(which)
        _Counted.work += len(found) if isinstance(which, slice) else 1
        return found

    def __delitem__(self, which: slice) -> None:  # type: ignore[override]
        _Counted.work += len(self) - which.stop if which.stop else 0
        super().__delitem__(which)


def test_each_byte_is_copied_only_a_few_times_however_it_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_hello, "bytearray", _Counted, raising=False)
    work = []
    for padding in (1500, 6000):
        whole = records(message((PADDING, bytes(padding)), (SERVER_NAME, KB)), padding // 2)
        _Counted.work = 0
        reader = HelloReader()
        *before, last = (reader.feed(whole[at : at + 1]) for at in range(len(whole)))
        assert (set(before), last) == ({None}, Hello("kb.test", False))
        work.append(_Counted.work / len(whole))
    # The first bytes of a record and of the message are looked at again with each segment.
    assert 2 < work[0] < 30
    assert work[1] < 1.1 * work[0]


@pytest.mark.deep(stands_in="test_each_byte_is_copied_only_a_few_times_however_it_arrives")
def test_small_segments_cause_little_work() -> None:
    """A byte at a time: a reader that began anew at each segment would need sixteen times as long
    for the longest hello as for a quarter of it."""

    def seconds(padding: int) -> float:
        whole = records(message((PADDING, bytes(padding)), (SERVER_NAME, KB)), *[(1 << 14) - 1] * 4)
        reader, found = HelloReader(), None
        begun = time.process_time()
        for at in range(len(whole)):
            found = reader.feed(whole[at : at + 1])
        assert found == Hello("kb.test", False)
        return time.process_time() - begun

    quarter, longest = (min(seconds(size) for _ in range(3)) for size in (15_000, 60_000))
    assert longest < 10 * quarter


@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=40),
    st.lists(st.integers(1, 200), max_size=12),
)
def test_splitting_into_segments_changes_nothing(segments: list[int], sizes: list[int]) -> None:
    whole = records(message((PADDING, bytes(300)), (SERVER_NAME, KB)), *sizes)
    reader, at, found = HelloReader(), 0, None
    for size in itertools.cycle(segments):
        assert found is None
        found = reader.feed(whole[at : at + size])
        at += size
        if at >= len(whole):
            break
    assert found == parse(whole) == Hello("kb.test", False)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_hello_or_refused(data: bytes) -> None:
    for each in (data, b"\x16" + data, b"\x16\x03\x01" + sized(data, 2)):
        parsed(each)


@given(st.data())
def test_a_damaged_hello_is_a_hello_or_none(data: st.DataObject) -> None:
    whole = bytearray(records(message((SERVER_NAME, KB), (ENCRYPTED, bytes(9))), 40))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    parsed(bytes(whole))


def parsed(data: bytes) -> None:
    """Whatever it is, it is nothing else than one of these."""
    try:
        found = parse(data)
    except Malformed:
        return
    assert found is None or isinstance(found, Hello)
