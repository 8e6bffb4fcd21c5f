"""Quotes names and texts for SQL that is printed. Knows no statement."""


def identifier(name: str) -> str:
    """Return a name as a quoted identifier, whatever characters or keyword it is."""
    return '"' + name.replace('"', '""') + '"'


def qualified(schema: str, name: str) -> str:
    """Return the name of an object with that of its schema, both quoted."""
    return f"{identifier(schema)}.{identifier(name)}"


def literal(text: str) -> str:
    """Return a text as a string constant."""
    quoted = "'" + text.replace("'", "''") + "'"
    # With `standard_conforming_strings` off, a backslash would escape the next character.
    return "E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted
