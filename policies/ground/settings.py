"""The parts that both services' settings share: the error with all complaints, and the text of
`--help`. Knows no particular setting: each service declares and reads its own."""

import ast
import inspect
import textwrap
from dataclasses import fields
from typing import Any

WIDTH = 92


class SettingsError(Exception):
    """invalid settings; `complaints` has one sentence for each"""

    def __init__(self, complaints: list[str]) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = complaints


def sentences(settings: type[Any]) -> dict[str, str]:
    """Return the docstring of each field of the dataclass `settings`, on one line, in the order of
    declaration. Raises `KeyError` if a field has none."""
    # Python does not keep docstrings of fields, so they are read from the installed source. The
    # operator then reads what the declarations say, and nothing can diverge.
    (declared,) = ast.parse(textwrap.dedent(inspect.getsource(settings))).body
    assert isinstance(declared, ast.ClassDef)
    found = {}
    # A docstring of a field is the statement that follows its declaration.
    for line, following in zip(declared.body, declared.body[1:], strict=False):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            text = following.value if isinstance(following, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[line.target.id] = " ".join(text.value.split())
    return {field.name: found[field.name] for field in fields(settings)}


def entry(name: str, default: str, sentence: str) -> str:
    """Return the lines of one setting in the output of `--help`: its name and default, and its
    sentence below."""
    indent = " " * 6
    words = textwrap.fill(sentence, WIDTH, initial_indent=indent, subsequent_indent=indent)
    return f"  {name}  [{default}]\n{words}"
