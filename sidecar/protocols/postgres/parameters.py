"""Judges the run-time parameters that an agent may set, reset and show.

Closed by default. What is open changes how the agent's own results look, or how its statements are
planned. Closed are parameters by which the server would read a text in another way than the sidecar
does, run code elsewhere (parallel workers, whose locks the sidecar can't see), or take the agent
for another role.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from policies.ground.canonical import identifier_fault
from policies.ground.errors import Malformed
from sidecar.protocols.postgres.names import words

_ANY_VALUE = words("""
application_name array_nulls bytea_output constraint_exclusion cpu_index_tuple_cost
cpu_operator_cost cpu_tuple_cost cursor_tuple_fraction datestyle default_text_search_config
default_transaction_deferrable default_transaction_isolation default_transaction_read_only
effective_cache_size enable_bitmapscan enable_distinct_reordering enable_gathermerge
enable_group_by_reordering enable_hashagg enable_hashjoin enable_incremental_sort
enable_indexonlyscan enable_indexscan enable_material enable_memoize enable_mergejoin
enable_nestloop enable_partition_pruning enable_partitionwise_aggregate enable_partitionwise_join
enable_presorted_aggregate enable_self_join_elimination enable_seqscan enable_sort enable_tidscan
escape_string_warning extra_float_digits from_collapse_limit geqo geqo_threshold
gin_fuzzy_search_limit intervalstyle jit jit_above_cost jit_inline_above_cost
jit_optimize_above_cost join_collapse_limit lc_monetary lc_numeric lc_time plan_cache_mode
quote_all_identifiers random_page_cost search_path seed seq_page_cost timezone
transaction_deferrable transaction_isolation transaction_read_only xmlbinary xmloption
hnsw.ef_search hnsw.iterative_scan hnsw.max_scan_tuples hnsw.scan_mem_multiplier
ivfflat.iterative_scan ivfflat.max_probes ivfflat.probes
pg_trgm.similarity_threshold pg_trgm.strict_word_similarity_threshold
pg_trgm.word_similarity_threshold
""")

# Some values only, in lower case.
_SOME_VALUES: dict[str, frozenset[str]] = {
    "client_encoding": frozenset({"utf8", "unicode"}),
    # The levels below show how the server works inside.
    "client_min_messages": frozenset({"log", "notice", "warning", "error"}),
    # Decides whether `\` escapes in an ordinary string.
    "standard_conforming_strings": frozenset({"on", "true", "yes", "1"}),
}

TIMEOUTS = (
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "lock_timeout",
    "statement_timeout",
    "transaction_timeout",
)
"""Parameters in milliseconds that an agent may lower below the source's own limit."""

_ATTRIBUTION = {
    "sluice.user": "user",
    "sluice.user_id": "user",
    "sluice.session": "session",
    "sluice.session_id": "session",
    "sluice.task": "task",
}
_OWN = "sluice."

_UNITS = {"us": 0.001, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class ParameterKind(Enum):
    """Who takes a parameter."""

    SERVER = "server"
    """The server: it may be sent."""
    TIMEOUT = "timeout"
    """The server, if the value is not above the limit."""
    ATTRIBUTION = "attribution"
    """The sidecar. It never reaches the server."""


class Setting(NamedTuple):
    """One parameter and the value that an agent gives it."""

    name: str
    """The name in lower case: names of parameters have no case."""
    value: str | None
    """The value; None for the default. A list, such as a `search_path`, is joined by `, `."""
    local: bool = False
    """True if the value ends with the transaction (`SET LOCAL`)."""

    @property
    def attributes(self) -> str | None:
        """`user`, `session` or `task` if the setting ends in the sidecar, else None."""
        return _ATTRIBUTION.get(self.name)


def refusal(setting: Setting, limits: Mapping[str, int]) -> str | None:
    """Return why an agent may not give a parameter this value; None if it may. `limits` has the
    highest value of each timeout, in milliseconds; without one, any value is taken."""
    name, value = setting.name, setting.value
    if name in _ATTRIBUTION:
        fault = None if value is None else identifier_fault(value)
        return None if fault is None else f"`{name}` {fault}"
    if name in _ANY_VALUE or (value is None and may_reset(name)):
        return None
    if name in _SOME_VALUES and value is not None:
        if _plain(name, value) in _SOME_VALUES[name]:
            return None
        return f"`{name}` may only be {' or '.join(sorted(_SOME_VALUES[name]))}"
    if name in TIMEOUTS and value is not None:
        return _timeout_refusal(name, value, limits.get(name))
    return f"`{name}` is not one of the parameters that an agent may set"


def _plain(name: str, value: str) -> str:
    # The server compares the letters and digits of an encoding alone: asyncpg sends `'utf-8'`.
    letters = value if name != "client_encoding" else "".join(filter(str.isalnum, value))
    return letters.lower()


def takes_any_value(name: str) -> bool:
    """Return whether a parameter may have a value that is known to the server only, such as `$1` in
    `set_config('jit', $1, false)`."""
    return name in _ANY_VALUE


def may_reset(name: str) -> bool:
    """Return whether an agent may set a parameter back to the value of its connection's start."""
    return name in _ANY_VALUE or name in _SOME_VALUES or name in TIMEOUTS or name in _ATTRIBUTION


def show_refusal(name: str) -> str | None:
    """Return why an agent may not see a parameter; None if it may. The server itself keeps those
    that only administrators may see."""
    if name == "all":
        return "`SHOW ALL` shows parameters that others set; name one"
    # Parameters of other programs can hold secrets: a tenant, a signed identity.
    if "." in name and name not in _ANY_VALUE and name not in _ATTRIBUTION:
        return f"`{name}` is not one of the parameters that an agent may see"
    return None


def milliseconds(value: str) -> int | None:
    """Return the duration that PostgreSQL reads in a timeout's value, such as `5000`, `5s` or
    `1.5 min`, in milliseconds, rounded as the server does; None if it has none."""
    text = value.strip(" \t\n\r\v\f")
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(number) :] or "ms"
    number = number.rstrip(" \t\n\r\v\f")
    digits = number.replace(".", "", 1)
    # Hexadecimal, octal and exponents are read by the server too, and are seldom meant.
    if unit not in _UNITS or not digits.isdecimal() or not digits.isascii() or len(digits) > 18:
        return None
    if len(digits) > 1 and digits[0] == "0" and "." not in number:
        return None
    return round(float(number) * _UNITS[unit])


def _timeout_refusal(name: str, value: str, limit: int | None) -> str | None:
    duration = milliseconds(value)
    if duration is None:
        return f"`{name}` must be a number of milliseconds, or a number with ms, s, min, h or d"
    if limit is None or limit == 0:
        return None
    # The server takes 0, to which 0.4 is rounded, for no limit at all.
    if duration == 0 or duration > limit:
        return f"`{name}` may only be lowered, below {limit} ms"
    return None


def read_options(text: str, limits: Mapping[str, int]) -> tuple[Setting, ...]:
    """Return the settings in the `options` of a startup message: `-c name=value`, also written
    `-cname=value` and `--name=value`. Raises `Malformed` for anything else, for a name stated twice
    and for a parameter that an agent may not set."""
    words = _split_options(text)
    found: dict[str, Setting] = {}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        dashed = False
        if word == "-c":
            if at == len(words):
                raise Malformed("`options` ends with `-c`")
            word, at = words[at], at + 1
        elif word.startswith("--"):
            word, dashed = word[2:], True
        elif word.startswith("-c"):
            word = word[2:]
        else:
            raise Malformed(f"`options` may only hold `-c name=value`, not `{word[:32]}`")
        setting = startup_setting(word, limits, dashed=dashed)
        if setting.name in found:
            raise Malformed(f"`options` states `{setting.name}` twice")
        found[setting.name] = setting
    return tuple(found.values())


def startup_setting(word: str, limits: Mapping[str, int], *, dashed: bool = False) -> Setting:
    """Return the setting in `name=value`. `dashed` names have `-` for `_`. Raises `Malformed`."""
    name, equals, value = word.partition("=")
    # The server reads `-` as `_` in both forms.
    name = name.replace("-", "_").lower()
    if not equals or not name:
        shown = f"--{word}" if dashed else word
        raise Malformed(f"`options` needs `name=value`, not `{shown[:32]}`")
    setting = Setting(name, value)
    reason = refusal(setting, limits)
    if reason is not None:
        raise Malformed(f"`options`: {reason}")
    return setting


def _split_options(text: str) -> list[str]:
    r"""Split as PostgreSQL does: at white space, with `\` before a character that is meant
    literally."""
    words: list[str] = []
    word: list[str] | None = None
    escaped = False
    for character in text:
        if escaped:
            escaped = False
        elif character == "\\":
            word = [] if word is None else word
            escaped = True
            continue
        elif character in " \t\n\r\v\f":
            if word is not None:
                words.append("".join(word))
                word = None
            continue
        word = [] if word is None else word
        word.append(character)
    if escaped:
        raise Malformed("`options` ends with a backslash")
    if word is not None:
        words.append("".join(word))
    return words
