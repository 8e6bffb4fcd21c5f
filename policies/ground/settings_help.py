"""Reads the sentence below each field of a settings dataclass, for `--help`.

The declarations are the one source: what a settings class says of a field is what an operator
reads. Knows classes and their source text, and no setting in particular.
"""

import ast
import inspect
import textwrap
from dataclasses import fields
from typing import Any

WIDTH = 92


def sentences(settings: type[Any]) -> dict[str, str]:
    """The docstring of each field of a dataclass, on one line, in the order of declaration.

    Python does not keep docstrings of fields, so they are read from the installed source. Raises
    `KeyError` if a field has none.
    """
    (declared,) = ast.parse(textwrap.dedent(inspect.getsource(settings))).body
    assert isinstance(declared, ast.ClassDef)
    found = {}
    for line, following in zip(declared.body, declared.body[1:], strict=False):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            text = following.value if isinstance(following, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[line.target.id] = " ".join(text.value.split())
    return {field.name: found[field.name] for field in fields(settings)}


def entry(name: str, default: str, sentence: str) -> str:
    """One setting for a list: its name and default, and its sentence below."""
    indent = " " * 6
    words = textwrap.fill(sentence, WIDTH, initial_indent=indent, subsequent_indent=indent)
    return f"  {name}  [{default}]\n{words}"
