"""Writes documents as YAML in many styles, with comments: what people write, and worse."""

from __future__ import annotations

import functools
import json
from random import Random
from typing import Any

import yaml


class Writer:
    """Writes one document. Every comment names the key or item that it is about."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._number = 0

    def document(self, value: dict[str, Any]) -> str:
        lines = ["# yaml-language-server: $schema=x.json"] if self._chance(0.3) else []
        lines += ["# the file", ""] if self._chance(0.3) else []
        lines += ["---"] if self._chance(0.1) else []
        lines += self._mapping(value, 0)
        lines += ["# the end"] if self._chance(0.2) else []
        text = "\n".join(lines) + "\n" * self._random.randint(0, 3)
        return text.replace("\n", "\r\n") if self._chance(0.2) else text

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _comment(self, about: str) -> str:
        self._number += 1
        return f"# {self._number} about {about}"

    def _mapping(self, value: dict[str, Any], indent: int) -> list[str]:
        lines: list[str] = []
        members = list(value.items())
        self._random.shuffle(members)
        for key, each in members:
            lines += [""] * self._random.choice([0, 0, 0, 1, 2])
            if self._chance(0.2):
                lines.append(" " * indent + self._comment(key))
            lines += self._member(f"{' ' * indent}{self._key(key)}:", each, indent, key)
        return lines

    def _key(self, key: str) -> str:
        return self._random.choice([key, key, key, f'"{key}"', f"'{key}'"])

    def _member(self, head: str, value: Any, indent: int, about: str) -> list[str]:
        beside = f" {self._comment(about)}" if self._chance(0.2) else ""
        block = isinstance(value, dict | list) and value and self._chance(0.6)
        if not block:
            if isinstance(value, str) and _plain(value) and self._chance(0.1):
                return [f"{head} |-{beside}", f"{' ' * (indent + 3)}{value}"]
            return [f"{head} {self._flow(value)}{beside}"]
        deeper = indent + self._random.choice([2, 2, 4])
        if isinstance(value, dict):
            return [head + beside, *self._mapping(value, deeper)]
        at = self._random.choice([indent, deeper])
        lines = [head + beside]
        for item in value:
            if self._chance(0.15):
                lines.append(" " * at + self._comment(f"item of {about}"))
            lines += self._item(item, at)
        return lines

    def _item(self, item: Any, at: int) -> list[str]:
        if not isinstance(item, dict) or self._chance(0.2):
            beside = f" {self._comment('item')}" if self._chance(0.2) else ""
            return [f"{' ' * at}- {self._flow(item)}{beside}"]
        inner = self._mapping(item, at + 2)
        first = next(
            number for number, line in enumerate(inner) if line.strip()[:1] not in ("", "#")
        )
        # What stands above the first key stands above the item.
        above = [line[2:] for line in inner[:first]]
        return [*above, f"{' ' * at}- {inner[first].lstrip()}", *inner[first + 1 :]]

    def _flow(self, value: Any) -> str:
        space = self._random.choice(["", " "])
        if isinstance(value, dict):
            items = [f"{self._key(key)}: {self._flow(each)}" for key, each in value.items()]
            return f"{{{space}{', '.join(items)}{space}}}"
        if isinstance(value, list):
            return f"[{space}{f',{space} '.join(map(self._flow, value))}{space}]"
        if isinstance(value, str):
            forms = [json.dumps(value, ensure_ascii=False), "'" + value.replace("'", "''") + "'"]
            return self._random.choice([*forms, value] if _plain(value) else forms)
        return json.dumps(value)


@functools.cache
def _plain(value: str) -> bool:
    """Whether the text can stand without quotes, in a flow collection too."""
    try:
        return bool(yaml.safe_load(f"[{value}]") == [value] and yaml.safe_load(value) == value)
    except yaml.YAMLError:
        return False
