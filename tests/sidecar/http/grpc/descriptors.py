"""Compares schemas with descriptors of Google's library, in both directions: `differences` holds a
table against those in a client's wheel, `message_classes` makes Google's classes from a schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from sidecar.http.grpc.protobuf import Schema
from sidecar.http.grpc.schema import Field, MessageFields

_Proto = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in _Proto.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE")
}
_KINDS = {number: name for name, number in _TYPES.items()}


def differences(
    fields: MessageFields, descriptor: Any, *, json_names: bool = False
) -> Iterator[str]:
    """Yield how a schema's message, and those within it, differ from a descriptor: fields that one
    of them lacks, other names or types, other groups, other presence. With `json_names`, a field
    may have the name that it has in JSON."""
    compared: set[tuple[str, str]] = set()
    waiting = [(fields, descriptor)]
    while waiting:
        ours, theirs = waiting.pop()
        if (ours.name, theirs.full_name) in compared:
            continue
        compared.add((ours.name, theirs.full_name))
        written = descriptor_pb2.DescriptorProto()
        theirs.CopyToProto(written)
        numbers = {each.number: each for each in ours.ordered}
        for field in written.field:
            about = f"{theirs.full_name}.{field.name} ({field.number})"
            mine = numbers.pop(field.number, None)
            if mine is None:
                yield f"{about} is not in the schema"
                continue
            described = theirs.fields_by_number[field.number]
            within = described.message_type
            name = mine.name if json_names and mine.name == described.json_name else field.name
            stated = f"{mine.name} {mine.kind}{'*' * (mine.repeated and not mine.is_map)}"
            meant = f"{name} {_kind(mine, field, within)}"
            if stated != meant:
                yield f"{about} is `{meant}`, not `{stated}`"
            if mine.group != _group(field, written):
                yield f"{about} is in the oneof `{_group(field, written)}`, not `{mine.group}`"
            # Of what is kept undecoded, and in a map, presence means nothing.
            counted = within is None and mine.kind != "raw" and not theirs.GetOptions().map_entry
            if counted and mine.present != _present(field):
                yield f"{about} has {'' if _present(field) else 'no '}presence"
            if mine.message is not None and within is not None:
                waiting.append((mine.message, within))
        for left in numbers.values():
            yield f"{theirs.full_name} has no field {left.number}, `{left.name}`"


def _kind(mine: Field, field: Any, within: Any) -> str:
    """Return a descriptor's type as a schema would write it. The names of messages are ours; in
    place of a message or bytes, a schema may have `raw`."""
    many = "*" * (field.label == _Proto.LABEL_REPEATED)
    if within is None:
        kind = _KINDS[field.type]
        return f"{'raw' if kind == 'bytes' and mine.kind == 'raw' else kind}{many}"
    if mine.kind == "raw":
        return f"raw{many}"
    if within.GetOptions().map_entry:
        key, value = (within.fields_by_number[number] for number in (1, 2))
        named = mine.kind[4:-1].partition(", ")[2]
        kind = named if value.message_type is not None else _KINDS[value.type]
        return f"map<{_KINDS[key.type]}, {kind}>"
    return f"{mine.kind if mine.message is not None else 'a message'}{many}"


def _group(field: Any, written: Any) -> str:
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return str(written.oneof_decl[field.oneof_index].name)


def _present(field: Any) -> bool:
    return bool(field.label == _Proto.LABEL_REPEATED or field.HasField("oneof_index"))


def message_classes(schema: Schema) -> dict[str, Any]:
    """Return Google's classes for the messages of a schema."""
    file = descriptor_pb2.FileDescriptorProto(name="drawn.proto", package="drawn", syntax="proto3")
    file.enum_type.add(name="Enum").value.add(name="ZERO", number=0)
    for name in schema:
        message = file.message_type.add(name=name)
        for field in schema[name].fields.ordered:
            _describe(message, field)
        # After those of the schema, as a descriptor must have it.
        for each in message.field:
            if each.proto3_optional:
                each.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{each.name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"drawn.{name}"))
        for name in schema
    }


def _describe(message: Any, field: Field) -> None:
    made = message.field.add(name=field.name, number=field.number)
    made.label = _Proto.LABEL_REPEATED if field.repeated else _Proto.LABEL_OPTIONAL
    if field.is_map:
        assert field.message is not None
        entry = message.nested_type.add(name=f"{field.name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        for part in field.message.ordered:
            _type(entry.field.add(name=part.name, number=part.number, label=1), part)
        made.type, made.type_name = _Proto.TYPE_MESSAGE, f".drawn.{message.name}.{entry.name}"
        return
    _type(made, field)
    if field.group:
        names = [each.name for each in message.oneof_decl]
        if field.group not in names:
            names.append(field.group)
            message.oneof_decl.add(name=field.group)
        made.oneof_index = names.index(field.group)
    elif field.present and field.message is None and not field.repeated:
        made.proto3_optional = True


def _type(made: Any, field: Field) -> None:
    if field.message is not None:
        made.type, made.type_name = _Proto.TYPE_MESSAGE, f".drawn.{field.message.name}"
        return
    made.type = _TYPES["bytes" if field.kind == "raw" else field.kind]
    if field.kind == "enum":
        made.type_name = ".drawn.Enum"
