"""The reader beside Google's own library: whatever ours accepts, Google's reads as the same values,
and what ours writes of them too."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from policies.ground.errors import Malformed
from sidecar.http.grpc.protobuf import Name, Schema
from sidecar.http.grpc.schema import VARINTS, Field
from sidecar.http.grpc.wire import read_varint, varint
from tests.sidecar.http.grpc.descriptors import message_classes
from tests.support import properties

SCHEMA = Schema(
    """
    Every
        1 int32 int32; 2 int64 int64; 3 uint32 uint32; 4 uint64 uint64; 5 sint32 sint32
        6 sint64 sint64; 7 bool bool; 8 enum enum; 9 double double; 10 fixed64 fixed64
        11 sfixed64 sfixed64; 12 float float; 13 fixed32 fixed32; 14 sfixed32 sfixed32
        15 string string @name; 16 bytes bytes; 17 raw raw; 18 every Every
        21 int32s int32*; 22 sint64s sint64*; 23 bools bool*; 24 enums enum*; 25 doubles double*
        26 floats float*; 27 fixed fixed32*; 28 strings string* @name; 29 blobs bytes*
        30 raws raw*; 31 everies Every*; 32 uint64s uint64*
        41 counted int32 ?; 42 named string ? @name; 43 held bytes ?; 44 weighed double ?
        51 texts map<string, string>; 52 flags map<bool, int32>; 53 within map<int64, Every>
        54 weights map<uint32, double>; 55 lists map<string, raw>
        oneof choice
            61 left string @name
            62 right int64
            63 far Every
        2000 last fixed64
""".replace("\n    ", "\n")
)
EVERY = SCHEMA["Every"]
GOOGLE = message_classes(SCHEMA)["Every"]
NUMBERS = [0, 1, 2, 127, 128, -1, -2, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63)]
TEXTS = ["", "a", "open", "shut", "é", "\U0001f511", "x" * 130, "\0"]


def drawn(chance: Random, depth: int = 3) -> Any:
    """A message with some fields."""
    made = GOOGLE()
    for field in chance.sample(EVERY.fields.ordered, chance.choice([0, 1, 3, 8])):
        if depth or "Every" not in field.kind:
            put(made, field, chance, depth)
    return made


def put(made: Any, field: Field, chance: Random, depth: int) -> None:
    many = range(chance.choice([0, 1, 1, 2, 5]))
    if field.is_map:
        assert field.message is not None
        key, value = field.message.ordered
        for _ in many:
            held = getattr(made, field.name)
            if value.message is None:
                held[scalar(key.kind, chance)] = scalar(value.kind, chance)
            else:
                held[scalar(key.kind, chance)].CopyFrom(drawn(chance, depth - 1))
    elif field.message is not None and field.repeated:
        getattr(made, field.name).extend(drawn(chance, depth - 1) for _ in many)
    elif field.message is not None:
        getattr(made, field.name).CopyFrom(drawn(chance, depth - 1))
    elif field.repeated:
        getattr(made, field.name).extend(scalar(field.kind, chance) for _ in many)
    else:
        setattr(made, field.name, scalar(field.kind, chance))


def scalar(kind: str, chance: Random) -> Any:
    if kind == "string":
        return chance.choice(TEXTS)
    if kind in ("bytes", "raw"):
        return chance.choice(TEXTS).encode() + chance.randbytes(chance.randrange(3))
    if kind in ("double", "float"):
        return chance.choice([0.0, -0.0, 1.0, 0.5, -2.25, math.inf])
    if kind == "bool":
        return chance.random() < 0.5
    least, most = VARINTS.get(kind) or (
        (-(1 << 63), (1 << 63) - 1) if kind[0] == "s" else (0, (1 << 32) - 1)
    )
    if kind == "sfixed32":
        least, most = -(1 << 31), (1 << 31) - 1
    return chance.choice([each for each in NUMBERS if least <= each <= most])


def values_of(message: Any) -> dict[str, Any]:
    """What Google's library reads, by field name."""
    values: dict[str, Any] = {}
    for about, value in message.ListFields():
        field = EVERY.fields.fields[about.name]
        if field.is_map:
            values[field.name] = {key: _value(each) for key, each in value.items()}
        elif field.repeated:
            values[field.name] = [_value(each) for each in value]
        else:
            values[field.name] = _value(value)
    return values


def _value(value: Any) -> Any:
    return values_of(value) if isinstance(value, GOOGLE) else value


def same(ours: Any, theirs: Any) -> bool:
    """Equal, and of equal types. A vector is bytes to us, and one NaN is as good as another."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(
            same(_numbers(key, each), theirs[key]) for key, each in ours.items()
        )
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        return repr(ours) == repr(theirs)
    return type(ours) is type(theirs) and bool(ours == theirs)


def _numbers(name: Any, value: Any) -> Any:
    code = {"doubles": "<d", "floats": "<f"}.get(name)
    if code is None or not isinstance(value, bytes):
        return value
    return [each for (each,) in struct.iter_unpack(code, value)]


def parsed(data: bytes) -> Any:
    made = GOOGLE()
    made.ParseFromString(data)
    return made


def parts(data: bytes) -> list[bytes]:
    """The fields of a message, each with its tag."""
    found, at = [], 0
    while at < len(data):
        start = at
        tag, at = read_varint(data, at, len(data))
        match tag & 7:
            case 0:
                _, at = read_varint(data, at, len(data))
            case 1:
                at += 8
            case 2:
                length, at = read_varint(data, at, len(data))
                at += length
            case _:
                at += 4
        found.append(data[start:at])
    return found


def mutated(data: bytes, other: bytes, chance: Random) -> bytes:
    """Another message: a byte of this one is another, or its fields stand otherwise."""
    at = chance.randrange(len(data) + 1)
    till = min(len(data), at + chance.randrange(1, 12))
    fields = parts(data)
    one = chance.choice(fields) if fields else b""
    match chance.randrange(10):
        case 0:
            return data[:at] + chance.randbytes(1) + data[at + 1 :]
        case 1:
            return data[:at] + bytes((chance.choice((0, 1, 0x7F, 0x80)),)) + data[at:]
        case 2:
            return data[:at] + data[till:]
        case 3:
            return data[:till] + data[at:]
        case 4:
            return data + other
        case 5:
            return b"".join(chance.sample(fields, len(fields)))
        case 6:
            return data + one
        case 7:
            return data.replace(one, padded(one), 1) if one else data
        case 8:
            return data + bytes((chance.randrange(256),)) + varint(chance.randrange(300))
        case _:
            return data + field_with(chance.choice(EVERY.fields.ordered), chance)


def padded(field: bytes) -> bytes:
    """A field whose tag has one byte more than it needs."""
    end = next(at for at, byte in enumerate(field) if byte < 0x80)
    return field[:end] + bytes((field[end] | 0x80, 0)) + field[end + 1 :]


def field_with(field: Field, chance: Random) -> bytes:
    """A field by its number, with any wire type and some bytes."""
    wire = chance.choice((field.tag & 7, field.wire, chance.randrange(8)))
    tag = varint(field.number << 3 | wire)
    content = chance.choice((b"", b"\0", b"\x0a\0", b"\1", chance.randbytes(8)))
    match wire:
        case 0:
            return tag + chance.choice((b"\0", b"\1", b"\x80\1", b"\x80\0", b"\xff" * 9 + b"\1"))
        case 2:
            return tag + varint(len(content)) + content
        case _:
            return tag + chance.randbytes({1: 8, 5: 4}.get(wire, 0))


def test_what_google_writes_is_read_as_it_means_and_written_as_it_stands() -> None:
    chance = properties.chance("what google writes")
    for _ in range(properties.few(1000)):
        made = drawn(chance)
        data = made.SerializeToString(deterministic=True)
        decoded = EVERY.decode(data)
        assert same(decoded.values, values_of(made)), data
        assert decoded.canonical, data
        assert EVERY.encode(decoded.values) == data
        assert sorted(EVERY.names(decoded.values)) == sorted(names_of(made))


def names_of(message: Any) -> Iterator[Name]:
    for about, value in message.ListFields():
        field = EVERY.fields.fields[about.name]
        for each in [value] if not field.repeated else value.values() if field.is_map else value:
            if field.mark:
                yield Name(field.mark, each)
            elif isinstance(each, GOOGLE):
                yield from names_of(each)


@pytest.mark.deep(stands_in="test_what_google_writes_is_read_as_it_means_and_written_as_it_stands")
def test_whatever_is_accepted_google_reads_alike() -> None:
    chance = properties.chance("what is accepted")
    accepted = refused = changed = 0
    for _ in range(properties.few(100_000)):
        one, other = (drawn(chance).SerializeToString(deterministic=True) for _ in range(2))
        data = mutated(one, other, chance)
        try:
            decoded = EVERY.decode(data)
        except Malformed:
            refused += 1
            continue
        accepted += 1
        assert same(decoded.values, values_of(parsed(data))), data
        again = EVERY.encode(decoded.values)
        assert same(decoded.values, values_of(parsed(again))), data
        assert EVERY.decode(again).canonical
        if b"\x7f" not in data and b"\xff" not in data:  # how a NaN begins: it has many forms
            assert decoded.canonical == (again == data), data
        changed += again != data
    assert min(accepted, refused, changed) > 0
