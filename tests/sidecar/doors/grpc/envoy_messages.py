"""The messages of `authorization.proto`, encoded and decoded by Google's own library: the other
reader and writer that ours is compared with."""

import re
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.support.stack import ROOT

PROTO = ROOT / "sidecar/doors/grpc/authorization.proto"
PACKAGE = "envoy.service.auth.v3"

_TOKEN = re.compile(r"[{}]|[^\s{};][^{};]*;?")
_FIELD = re.compile(r"(repeated )?(map<string, )?([\w]+)>? (\w+) = (\d+);")
_SCALARS = {"string": 9, "bytes": 12, "int32": 5, "int64": 3}
_ENUM, _MESSAGE = 14, 11


@cache
def message(name: str) -> Any:
    """The class of a message, such as `CheckRequest`."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file_descriptor())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


@cache
def file_descriptor() -> Any:
    """What the file says, as a compiler of protocol buffers would put it."""
    text = re.sub(r"//.*", "", PROTO.read_text(encoding="utf-8"))
    text = re.sub(r"syntax.*;|package.*;|service \w+ \{[^}]*\}", "", text)
    made = descriptor_pb2.FileDescriptorProto(
        name="authorization.proto", package=PACKAGE, syntax="proto3"
    )
    path: list[Any] = [made]
    for token in _TOKEN.findall(text):
        if token == "{":
            continue
        if token == "}":
            path.pop()
        elif token.startswith("message "):
            where = path[-1].message_type if path[-1] is made else path[-1].nested_type
            path.append(where.add(name=token.split()[1]))
        elif token.startswith("enum "):
            path.append(path[-1].enum_type.add(name=token.split()[1]))
        elif isinstance(path[-1], descriptor_pb2.EnumDescriptorProto):
            name, _, number = token.rstrip(";").split()
            path[-1].value.add(name=name, number=int(number))
        else:
            _add_field(path[-1], token)
    return made


def _add_field(owner: Any, line: str) -> None:
    found = _FIELD.fullmatch(line)
    assert found is not None, line
    repeated, mapped, kind, name, number = found.groups()
    field = owner.field.add(name=name, number=int(number), label=3 if repeated or mapped else 1)
    if mapped:
        entry = owner.nested_type.add(name=name.title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=_SCALARS["string"])
        _set_type(entry.field.add(name="value", number=2, label=1), kind)
        field.type, field.type_name = _MESSAGE, entry.name
    else:
        _set_type(field, kind)


def _set_type(field: Any, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type_name = kind  # a message or an enumeration; the pool finds out
