"""What a value in a file of tests may be, beyond the forms that every file has
(`policies.definitions.forms`)."""

import re
from dataclasses import dataclass
from typing import Any

from policies.definitions.definition import DefinitionFaults, Node, shown, surrogate_fault
from policies.definitions.forms import Form, Identifier, Record, Schema, actual
from policies.ground.json_body import identifier_fault


@dataclass(frozen=True, slots=True)
class Flag:
    """`true` or `false`."""

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> bool | None:
        # YAML 1.1 also takes `yes`, `on` and others for truth values; one spelling is enough.
        if node.tag == "bool" and node.value.lower() in ("true", "false"):
            return bool(node.value.lower() == "true")
        given = f", not {shown(node.value)}" if isinstance(node.value, str) else ""
        faults.add(node.line, key, f"must be `true` or `false`{given}")
        return None

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Text:
    """A string of at most `most` bytes of UTF-8."""

    most: int

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> str | None:
        if node.tag != "str":
            faults.add(node.line, key, f"must be a string{actual(node)}")
            return None
        text: str = node.value
        fault = surrogate_fault(text)
        if fault is None and len(text.encode()) > self.most:
            fault = f"must be a string of at most {self.most} bytes"
        if fault:
            faults.add(node.line, key, fault)
        return text

    def schema(self) -> Schema:
        # JSON Schema counts characters.
        return {"type": "string", "maxLength": self.most}


@dataclass(frozen=True, slots=True)
class Written:
    """A string of this form: `expression` matches all of it."""

    expression: re.Pattern[str]

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> str | None:
        if node.tag == "str" and self.expression.fullmatch(node.value):
            return str(node.value)
        faults.add(node.line, key, f"must have the form {self.expression.pattern}{actual(node)}")
        return None

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{self.expression.pattern}$"}


@dataclass(frozen=True, slots=True)
class Named:
    """A mapping from names to values of one form."""

    form: Form

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> dict[str, Any] | None:
        if node.tag != "map":
            faults.add(node.line, key, f"must be a mapping by name{actual(node)}")
            return None
        found = {}
        for name, value in node.value.items():
            if fault := identifier_fault(name) or surrogate_fault(name):
                faults.add(value.line, key, f"{shown(name)} {fault}")
            found[name] = self.form.read(key, value, faults)
        return found

    def schema(self) -> Schema:
        return {
            "type": "object",
            "propertyNames": Identifier().schema(),
            "additionalProperties": self.form.schema(),
        }


@dataclass(frozen=True, slots=True)
class NotEmpty:
    """A mapping that has at least one of its keys."""

    record: Record

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> dict[str, Any] | None:
        if node.tag == "map" and not node.value:
            faults.add(node.line, key, f"needs at least one of {', '.join(self.record.keys)}")
            return None
        return self.record.read(key, node, faults)

    def schema(self) -> Schema:
        return {**self.record.schema(), "minProperties": 1}
