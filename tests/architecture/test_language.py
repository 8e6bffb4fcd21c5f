"""The prose is plain English: no file contains the forms that make sentences hard to read."""

from __future__ import annotations

import functools
import re

import pytest

from tests.architecture.tree import ROOT, files

STILTED = {
    "nobody": r"""(?<!["'`/=:])\bnobod(?:y|ies)\b(?!["'`:])""",
    "whoever": r"\bwhoever\b(?!\")",
    "is none": r"(?<!there )\b(?:is|are|was|were) (?-i:none)\b",
    "may be no": r"(?<!there )\bmay be no\b",
    "that may be": r"\bthat may be(?=[.,:;)])",
    "no matter of": r"\bno matter of\b",
}
"""Each form, and the expression that finds it, in any case and across line breaks. Python's `is
None`, and `"nobody"` as a value, are not meant."""

LITERALS = {"nobody": "nobod", "is none": " none"}
"""What each file with a form contains in lower case, where that is not the form itself. A search
for it is much faster than one for the expression."""

HERE = "tests/architecture/test_language.py"
WORDS = {".py", ".md", ".yaml", ".yml", ".toml", ".js", ".css", ".txt", ""}
# Between two words of a comment that goes on in the next line stands more than a space.
BREAK = re.compile(r"\s*\n\s*(?:#\s*)?")


@functools.cache
def texts() -> dict[str, str]:
    """Each file's text by its name, on one line. Names in code are prose, too:
    `test_nobody_is_refused`."""
    return {
        name: BREAK.sub(" ", path.read_text(encoding="utf-8", errors="replace")).replace("_", " ")
        for path in files()
        if path.suffix in WORDS and (name := str(path.relative_to(ROOT))) != HERE
    }


@functools.cache
def lowered() -> dict[str, str]:
    return {name: text.lower() for name, text in texts().items()}


def found(form: str) -> list[str]:
    expression = re.compile(STILTED[form], re.IGNORECASE)
    return [
        f"{name}: …{text[max(0, hit.start() - 30) : hit.end() + 30]}…"
        for name, text in texts().items()
        if LITERALS.get(form, form) in lowered()[name]
        for hit in expression.finditer(text)
    ]


@pytest.mark.parametrize("form", STILTED)
def test_no_file_is_stilted(form: str) -> None:
    assert not found(form)


def test_each_stilted_form_is_found_in_a_sentence() -> None:
    for form, expression in STILTED.items():
        assert re.search(expression, f"It {form}.", re.IGNORECASE), form
        assert LITERALS.get(form, form) in f"it {form}."
