"""Reads the section `authzen` of the settings file. Knows no other key."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from policies.definitions.definition import shown
from policies.definitions.model import SENSITIVITIES
from policies.definitions.wildcard import is_pattern, matcher
from policies.ground.canonical import identifier_fault
from sidecar.config.sections import Section, address_fault
from sidecar.settings.authzen import ActionRule, AuthzenSettings, ResourceRule, Scalar

# Its path becomes part of a route: no escapes, no empty segments, no `.` and `..`.
_PLAIN_URL = re.compile(r"https://[A-Za-z0-9.\[\]:-]+(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~-]+)*\Z")
_PLACEHOLDER = re.compile(r"\{type\}|\{id\}")


def read_authzen(section: Section, base: Path) -> AuthzenSettings:
    """Return the settings in `section`, and the defaults of absent keys. `base` is the folder of
    paths."""
    default = AuthzenSettings()
    settings = AuthzenSettings(
        url=_url(section),
        signing_key_file=_signing_key_file(section, base),
        subject_types=_subject_types(section, default.subject_types),
        role_property=section.identifier("role_property") or default.role_property,
        resources=tuple(_resources(section)),
        actions=tuple(_actions(section)) if section.has("actions") else default.actions,
    )
    section.close()
    return settings


def _url(section: Section) -> str | None:
    """Return the address of AuthZEN, which clients compare byte by byte with the one they know."""
    url = section.text("url")
    if url is None:
        return None
    fault = address_fault(url, ("https",))
    if fault is None and url.endswith("/"):
        fault = f"{shown(url)} must not end with `/`: clients compare it with theirs"
    if fault is None and any(each in url for each in "?#"):
        fault = "must have neither query nor fragment; remove `?` and `#`"
    if fault is None and not _PLAIN_URL.match(url):
        fault = f"{shown(url)} must be `https://host:port` and a path of plain words"
    if fault is not None:
        section.complain("url", fault)
    return url


def _signing_key_file(section: Section, base: Path) -> Path | None:
    text = section.text("signing_key_file")
    if text is None:
        return None
    from sidecar.authzen.signing_key import SigningKey  # megabytes, and few sign

    try:
        SigningKey.load(base / text)
    except ValueError as error:
        section.complain("signing_key_file", str(error))
    return base / text


def _subject_types(section: Section, default: tuple[str, ...]) -> tuple[str, ...]:
    types = section.texts("subject_types")
    for each in types:
        if fault := identifier_fault(each):
            section.complain("subject_types", f"{shown(each)} {fault}")
    return types if section.has("subject_types") else default


def _resources(authzen: Section) -> list[ResourceRule]:
    found: list[ResourceRule] = []
    for section in authzen.sections("resources"):
        source_id = section.identifier("source_id")
        if source_id is not None and re.search(r"[{}]", _PLACEHOLDER.sub("", source_id)):
            fault = "may hold no braces but `{type}` and `{id}`"
            section.complain("source_id", f"{shown(source_id)} {fault}")
        rule = ResourceRule(
            type=section.identifier("type", required=True) or "",
            id=section.identifier("id") or "*",
            when=section.scalars("when"),
            source_id=source_id,
            sensitivity=section.optional_choice("sensitivity", SENSITIVITIES),
        )
        section.close()
        before = [
            (each.when, each.type == rule.type and _covers(each.id, rule.id)) for each in found
        ]
        _refuse_unreachable(section, "type", rule.when, before)
        found.append(rule)
    return found


def _actions(authzen: Section) -> list[ActionRule]:
    found: list[ActionRule] = []
    for section in authzen.sections("actions"):
        rule = ActionRule(
            name=section.identifier("name", required=True) or "",
            when=section.scalars("when"),
            task=section.identifier("task"),
        )
        section.close()
        before = [(each.when, each.name == rule.name) for each in found]
        _refuse_unreachable(section, "name", rule.when, before)
        found.append(rule)
    return found


def _covers(earlier: str, later: str) -> bool:
    """Return whether the pattern `earlier` matches each id that `later` matches. False also where
    that isn't plain."""
    return earlier in ("*", later) or (not is_pattern(later) and matcher([earlier])(later))


def _refuse_unreachable(
    section: Section,
    key: str,
    when: Mapping[str, Scalar],
    before: Sequence[tuple[Mapping[str, Scalar], bool]],
) -> None:
    """Complain of a rule that an earlier one hides. `before` has, for each earlier rule, its
    `when`, and whether it covers the names of this rule."""
    for index, (earlier, same) in enumerate(before):
        if same and _asked(earlier) <= _asked(when):
            section.complain(key, f"is never reached: rule {index} of the list matches all of it")
            return


def _asked(when: Mapping[str, Scalar]) -> set[tuple[str, bool, Scalar]]:
    # Python takes `true` for 1; JSON does not.
    return {(name, isinstance(value, bool), value) for name, value in when.items()}
