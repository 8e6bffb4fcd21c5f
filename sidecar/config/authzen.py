"""Reads the section `authzen` of the settings file. Knows no other key."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from policies.definitions.definition import shown
from policies.definitions.forms import IDENTIFIER, FilePath, Text
from policies.definitions.records import Section, declared
from policies.definitions.wildcard import is_pattern, matcher
from policies.ground.canonical import identifier_fault
from sidecar.config.forms import SCALARS, Texts, address_fault, sections
from sidecar.settings.sections import ActionRule, AuthzenSettings, ResourceRule, Scalar

# Its path becomes part of a route: no escapes, no empty segments, no `.` and `..`.
_PLAIN_URL = re.compile(r"https://[A-Za-z0-9.\[\]:-]+(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~-]+)*\Z")
_PLACEHOLDER = re.compile(r"\{type\}|\{id\}")


def _url_fault(url: str) -> str | None:
    """Return the fault of the value of `authzen.url`; None if it has none. AuthZEN clients compare
    the address byte by byte with the one they know, so only one spelling is accepted."""
    if fault := address_fault(url, ("https",)):
        return fault
    if url.endswith("/"):
        return f"{shown(url)} must not end with `/`: clients compare it with theirs"
    if any(each in url for each in "?#"):
        return "must have neither query nor fragment; remove `?` and `#`"
    if not _PLAIN_URL.match(url):
        return f"{shown(url)} must be `https://host:port` and a path of plain words"
    return None


def _load_signing_key(path: Path) -> None:
    from sidecar.authzen.signing_key import SigningKey  # megabytes, and few sign

    SigningKey.load(path)


def _type_fault(text: str) -> str | None:
    fault = identifier_fault(text)
    return fault and f"{shown(text)} {fault}"


def _source_id_fault(text: str) -> str | None:
    if fault := identifier_fault(text):
        return fault
    braces = re.search(r"[{}]", _PLACEHOLDER.sub("", text))
    return f"{shown(text)} may hold no braces but `{{type}}` and `{{id}}`" if braces else None


def _authzen(section: Section, values: dict[str, Any]) -> AuthzenSettings:
    settings = AuthzenSettings(**values)
    for index, (item, rule) in enumerate(
        zip(section.items("resources"), settings.resources, strict=False)
    ):
        before = [
            (each.when, each.type == rule.type and _covers(each.id, rule.id))
            for each in settings.resources[:index]
        ]
        _refuse_unreachable(item, "type", rule.when, before)
    for index, (item, action) in enumerate(
        zip(section.items("actions"), settings.actions, strict=False)
    ):
        same = [(each.when, each.name == action.name) for each in settings.actions[:index]]
        _refuse_unreachable(item, "name", action.when, same)
    return settings


AUTHZEN = declared(
    AuthzenSettings,
    _authzen,
    url=Text(_url_fault),
    signing_key_file=FilePath("folder", _load_signing_key),
    subject_types=Texts(_type_fault),
    resources=sections(
        declared(ResourceRule, when=SCALARS, source_id=Text(_source_id_fault, IDENTIFIER.limits))
    ),
    actions=sections(declared(ActionRule, when=SCALARS)),
)


def _covers(earlier: str, later: str) -> bool:
    """Return whether the pattern `earlier` matches every id that `later` matches. Returns False too
    if that can't be told easily."""
    return earlier in ("*", later) or (not is_pattern(later) and matcher([earlier])(later))


def _refuse_unreachable(
    section: Section,
    key: str,
    when: Mapping[str, Scalar],
    before: Sequence[tuple[Mapping[str, Scalar], bool]],
) -> None:
    """Complain about a rule that can never apply because an earlier rule matches everything it
    matches. `before` has, for each earlier rule, its `when`, and whether it covers the names of
    this rule."""
    for index, (earlier, same) in enumerate(before):
        if same and _asked(earlier) <= _asked(when):
            section.complain(key, f"is never reached: rule {index} of the list matches all of it")
            return


def _asked(when: Mapping[str, Scalar]) -> set[tuple[str, bool, Scalar]]:
    # Python takes `true` for 1; JSON does not.
    return {(name, isinstance(value, bool), value) for name, value in when.items()}
