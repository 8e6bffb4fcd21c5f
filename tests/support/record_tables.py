"""The tables of a decision's fields in the README of the audit trail, made from the table in code.

python -m tests.support.record_tables      write them
"""

import re
from pathlib import Path

from policies.trail.fields import FIELDS, Field

PAGE = Path(__file__).parents[2] / "policies" / "trail" / "README.md"


def written(page: str) -> str:
    """Return the page with current tables; each is below its heading and a paragraph."""
    for heading, table in (
        ("A decision's fields", _recorded()),
        ("Where a field is shown", _shown()),
    ):
        below = re.compile(rf"(### {heading}\n\n[^\n]*\n\n)(?:\|.*\n)+")
        assert below.search(page), heading
        page = below.sub(lambda found, table=table: found[1] + table, page)  # type: ignore[misc]
    return page


def _recorded() -> str:
    """Return the members of a record, in the order of the encoding."""
    meanings: dict[str, list[Field]] = {}
    for field in sorted(FIELDS, key=lambda each: each.path):
        if field.path:
            meanings.setdefault(field.path, []).append(field)
    return _table(
        ("Field", "Type", "Is"),
        [
            (f"`{path}`", _type(same[0]), " ".join(each.says for each in same))
            for path, same in meanings.items()
        ],
    )


def _type(field: Field) -> str:
    kind = f"commitment to: {field.type}" if field.committed else str(field.type)
    notes = [", optional"] * field.optional + [f", since `v` {field.since}"] * (field.since > 1)
    return kind + "".join(notes)


def _shown() -> str:
    """Return the fields that an event of the API has, in its order."""
    rows = []
    for field in FIELDS:
        if field.shown:
            title = None if field.report is None else field.report[1]
            exports = map(_names, (field.ocsf, field.ecs, field.otel))
            path = f"`{field.path}`" if field.path else ""
            rows.append((f"`{field.shown}`", path, str(field.csv or ""), *exports, title or ""))
    header = "In the API", "In the record", "`csv`", "`ocsf`", "`ecs`", "`otel`", "In a report"
    return _table(header, rows)


def _names(columns: str | None) -> str:
    return ", ".join(f"`{each}`" for each in (columns or "").split(", ") if each)


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
