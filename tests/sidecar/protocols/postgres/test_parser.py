"""What the parser reads and refuses, and that no text can end the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import postgast
import pytest

from sidecar.protocols.postgres import nesting, parser
from sidecar.protocols.postgres.parser import Unreadable, parse
from tests.support.properties import chance

# A construct that nests, repeated: to the right, which the grammar's own stack bounds, and to the
# left, which nothing bounds but the check before it.
NESTED: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: "SELECT " + "(" * n + "1" + ")" * n,
    "concatenation": lambda n: "SELECT 'a'" + "||'a'" * n,
    "NOT": lambda n: "SELECT " + "NOT " * n + "true",
    "minus": lambda n: "SELECT " + "- " * n + "1",
    "CASE": lambda n: "SELECT " + "CASE WHEN " * n + "true" + " THEN 1 END" * n,
    "subqueries": lambda n: "SELECT " + "(SELECT " * n + "1" + ")" * n,
    "subqueries in FROM": lambda n: "SELECT 1 FROM " + "(SELECT 1 FROM " * n + "a" + ") x" * n,
    "arrays": lambda n: "SELECT ARRAY" + "[" * n + "1" + "]" * n,
    "calls": lambda n: "SELECT " + "f(" * n + "1" + ")" * n,
    "casts": lambda n: "SELECT 1" + "::int" * n,
    "COLLATE": lambda n: "SELECT 'a'" + " COLLATE x" * n,
    "IS NULL": lambda n: "SELECT 1" + " IS NULL" * n,
    "BETWEEN": lambda n: "SELECT 1" + " IS NULL BETWEEN 1 AND 2" * n,
    "DISTINCT FROM": lambda n: "SELECT " + "NOT a IS DISTINCT FROM " * n + "b",
    "UNION": lambda n: "SELECT 1" + " UNION SELECT 1" * n,
    "joins": lambda n: "SELECT 1 FROM a" + " JOIN b ON true" * n,
    "WITH": lambda n: "WITH a AS (" * n + "SELECT 1" + ") SELECT 1" * n,
    "names like words": lambda n: "SELECT x" + " + a./**/or" * n,
    "comments": lambda n: "/*" * n + "*/" * n + "SELECT 1",
    "lists": lambda n: "SELECT 1" + ",1" * n,
    "statements": lambda n: "SELECT 1;" * n,
    "conditions": lambda n: "SELECT true" + " AND true" * n,
}

ATTACK = """
import sys, threading
from tests.sidecar.protocols.postgres.test_parser import NESTED
from sidecar.protocols.postgres.parser import Unreadable, parse

def run():
    for name, make in NESTED.items():
        for times in (200, 700, 1400, 3000, 100_000):
            text = make(times)
            try:
                parse(text[: 1 << 20])
            except Unreadable:
                pass
    print("alive")

threading.stack_size(1 << 20)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def unreadable(text: str) -> Unreadable:
    with pytest.raises(Unreadable) as caught:
        parse(text)
    return caught.value


def test_an_error_has_the_character_where_the_grammar_stopped() -> None:
    error = unreadable("SELECT 'äöü' FORM t")
    assert (error.reason, error.position) == ('syntax error at or near "t"', 19)
    error = unreadable("SELECT 'open")
    assert error.reason == 'unterminated quoted string at or near "\'open"'
    assert error.position == 8


def test_a_text_within_the_limits_is_read() -> None:
    # The first is what other decoders of the tree stop at.
    for times, name in ((200, "concatenation"), (48, "joins"), (23, "subqueries"), (47, "arrays")):
        assert len(parse(NESTED[name](times)).statements) == 1
    vector = ",".join(["-0.1"] * 1536)
    assert parse(f"SELECT a <=> '[{vector}]' FROM t ORDER BY 1").statements
    rows = ", ".join("(1, 'a', true)" for _ in range(1000))
    assert parse(f"INSERT INTO t VALUES {rows}").statements
    conditions = " OR ".join("a = 1" for _ in range(1000))
    assert parse(f"SELECT 1 FROM t WHERE {conditions}").statements
    assert parse(f"SELECT '{'=' * 1900}'").statements
    assert parse("").statements == []


def test_a_text_beyond_a_limit_is_unreadable() -> None:
    assert "NUL" in unreadable("SELECT 1\0").reason
    assert "Unicode" in unreadable("SELECT '\ud800'").reason
    assert "larger than" in unreadable("SELECT '" + "a" * (1 << 20) + "'").reason
    assert "larger than" in unreadable("SELECT '" + "ä" * (1 << 19) + "'").reason
    assert "deeply" in unreadable(NESTED["concatenation"](1000)).reason
    assert "deeply" in unreadable(NESTED["joins"](2000)).reason
    assert "operator characters" in unreadable(NESTED["comments"](3000)).reason
    assert "expressions" in unreadable(NESTED["lists"](100_000)).reason


def test_the_bound_of_a_text_s_nesting_grows_with_its_tree() -> None:
    for name, make in NESTED.items():
        few, more = (nesting.nesting_of(words(make(times))) for times in (20, 40))
        if name in {"comments", "lists", "statements", "conditions"}:
            assert more == few, name
        else:
            assert more - few >= 20, name


def words(text: str) -> list[bytes]:
    """The tokens as libpg_query's own decoder gives them."""
    data = text.encode()
    return [data[each.start : each.end].lower() for each in postgast.scan(text).tokens]


def test_tokens_are_those_of_the_grammar_s_lexer() -> None:
    random = chance("tokens of PostgreSQL")
    parts = ["SELECT ", "é ", "'a''b' ", '"C"', "$1 ", "$$x$$", "+", "/* c */", "-- d\n", "1.5 "]
    filler = "SELECT -1" + "-1" * nesting.MAX_DEPTH + " "
    for _ in range(5):
        text = filler + "".join(random.choices(parts, k=30))
        found = list(parser.tokens(text.encode()))
        assert found == words(text)


def test_a_fingerprint_is_the_same_for_other_constants() -> None:
    assert parser.fingerprint("SELECT a FROM t WHERE b = 1") == parser.fingerprint(
        "select A from t where b = 2 /* c */"
    )
    assert parser.fingerprint("SELECT a FROM t") != parser.fingerprint("SELECT a FROM u")


@pytest.mark.deep(stands_in="test_a_text_beyond_a_limit_is_unreadable")
def test_no_text_ends_a_thread_with_a_stack_of_one_megabyte() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ATTACK], capture_output=True, text=True, check=False, timeout=300
    )
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr
