"""The JSON Schema (2020-12) of the settings file, noted while the reader reads.

`read_settings` is run over sections that have every key and no value: each call says of a key what
it may hold. So there is no second list of keys. Opens no file.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from policies.definitions.forms import IDENTIFIER, Choice, or_null
from policies.ground.addresses import ListenAddress, RedisUrl
from sidecar.config.help import keys
from sidecar.config.sections import DIGITS, Section, Spelling
from sidecar.config.settings_reader import read_settings
from sidecar.settings.authzen import Scalar
from sidecar.settings.model import Switch

Schema = dict[str, Any]

_ANY = "*"
"""Stands for a key that the operator chooses."""
_TEXT: Schema = {"type": "string"}
_FILLED: Schema = {"type": "string", "minLength": 1}

_Word = TypeVar("_Word", bound=str)


def settings_schema() -> Schema:
    """Return the schema of the whole file."""
    sentences = dict(keys())
    enrolled = _NotingSection("", sentences)
    own = _NotingSection("", sentences, absent="enrol")
    for top in (enrolled, own):
        read_settings(top, Path(), "host")
    merged = {**own.properties(), **enrolled.properties()}
    only_own = [key for key in own.needed if key not in enrolled.needed]
    return {
        **enrolled.schema(),
        "properties": {key: merged[key] for key in sentences if key in merged},
        # A sidecar that enrols has no key of its own in the settings; the reader asks for one or
        # the other.
        "if": {"properties": {"enrol": {"type": "object"}}, "required": ["enrol"]},
        "else": {"required": only_own},
    }


class _NotingSection(Section):
    """A section that notes the keys that its reader asks for. It answers as if every section except
    `absent` were there, and every value were missing. `place` is its position in `sentences`."""

    def __init__(self, place: str, sentences: dict[str, str], absent: str = "") -> None:
        super().__init__(None, "", lambda *_: None)
        self.given = True
        self.needed: list[str] = []
        self._forms: dict[str, Callable[[], Schema]] = {}
        self._place, self._sentences, self._absent = place, sentences, absent

    def schema(self) -> Schema:
        """Return the schema of the section, which is complete once the section was read."""
        others: Schema | bool = False
        if _ANY in self._forms:
            form = self._forms[_ANY]()
            others = form if _ANY in self.needed else or_null(form)
        return {
            "type": "object",
            "properties": self.properties(),
            "required": [key for key in self.needed if key != _ANY],
            "additionalProperties": others,
        }

    def properties(self) -> dict[str, Schema]:
        """Return the schema of each key: its possible values and its description."""
        found: dict[str, Schema] = {}
        for key, form in self._forms.items():
            # Without a value, a key counts as absent.
            schema = form() if key in self.needed else or_null(form())
            sentence = self._sentences.get(self._below(key))
            if key != _ANY:
                found[key] = schema if sentence is None else {"description": sentence, **schema}
        return found

    def _note(self, key: str, form: Schema, *, needed: bool = False) -> None:
        """Keep the first note of a key as its schema: a reader may look at the key again."""
        if key not in self._forms:
            self._forms[key] = lambda: form
            self.needed += [key] if needed else []

    def _below(self, key: str) -> str:
        if key == _ANY:
            return self._place
        return f"{self._place}.{key}" if self._place else key

    def has(self, key: str) -> bool:
        return key != self._absent

    def own_keys(self) -> tuple[str, ...]:
        return (_ANY,)

    def text(
        self, key: str, default: str | None = None, spelling: Spelling | None = None
    ) -> str | None:
        self._note(key, _spelt(_TEXT, spelling))
        return super().text(key, default, spelling)

    def texts(self, key: str) -> tuple[str, ...]:
        self._note(key, {"anyOf": [{"type": "array", "items": _TEXT}, _TEXT]})
        return super().texts(key)

    def required(
        self, key: str, spelling: Spelling | None = None, absent: str = "is required"
    ) -> str:
        self._note(key, _spelt(_FILLED, spelling), needed=True)
        return super().required(key, spelling, absent)

    def identifier(self, key: str, *, required: bool = False) -> str | None:
        self._note(key, IDENTIFIER.schema(), needed=required)
        return super().identifier(key, required=required)

    def choice(self, key: str, allowed: tuple[_Word, ...], default: _Word | None = None) -> _Word:
        self._note(key, Choice(allowed).schema(), needed=default is None)
        return super().choice(key, allowed, default)

    def switch(self, key: str, default: Switch) -> Switch:
        # A validator sees the truth values that YAML makes of these words.
        self._note(key, {"enum": ["on", "off", True, False]})
        return super().switch(key, default)

    def optional_choice(self, key: str, allowed: tuple[_Word, ...]) -> _Word | None:
        self._note(key, Choice(allowed).schema())
        return None

    def scalars(self, key: str) -> dict[str, Scalar]:
        scalar = {"type": ["string", "number", "boolean", "null"]}
        self._note(key, {"type": "object", "additionalProperties": scalar})
        return super().scalars(key)

    def integer(self, key: str, default: int, least: int) -> int:
        self._note(key, {"type": "integer", "minimum": least, "maximum": 10**DIGITS - 1})
        return super().integer(key, default, least)

    def seconds(self, key: str, default: float, least: float, most: float) -> float:
        self._note(key, {"type": "number", "minimum": least, "maximum": most})
        return super().seconds(key, default, least, most)

    def share(self, key: str, default: float) -> float:
        self._note(key, {"type": "number", "minimum": 0, "maximum": 1})
        return super().share(key, default)

    def path(self, key: str, base: Path, default: str | None = None) -> Path:
        form = _FILLED if default is None else _TEXT
        self._note(key, form, needed=default is None)
        return super().path(key, base, default)

    def listen(self, key: str, default: str | None = None) -> ListenAddress | None:
        self._note(key, {**_TEXT, "pattern": ":[0-9]{1,5}$"})
        return super().listen(key, default)

    def address(self, key: str, schemes: tuple[str, ...] = ("http", "https")) -> str:
        self._note(key, {**_FILLED, "pattern": "://"}, needed=True)
        return super().address(key, schemes)

    def redis(self, key: str, base: Path) -> RedisUrl | None:
        self._note(key, _TEXT)
        return super().redis(key, base)

    def section(self, key: str) -> "_NotingSection":
        inner = _NotingSection(self._below(key), self._sentences)
        inner.given = self.has(key)
        if inner.given:
            self._forms[key] = inner.schema
        return inner

    def sections(self, key: str) -> Iterator[Section]:
        inner = _NotingSection(self._below(key), self._sentences)
        self._forms[key] = lambda: {"type": "array", "items": or_null(inner.schema())}
        yield inner


def _spelt(form: Schema, spelling: Spelling | None) -> Schema:
    if spelling is None:
        return form
    # JSON Schema has the expressions of ECMAScript, which knows no `\A` and `\Z`.
    pattern = spelling.pattern.pattern.replace(r"\A", "^").replace(r"\Z", "$")
    return {**form, "pattern": f"^(?:{pattern})"}
