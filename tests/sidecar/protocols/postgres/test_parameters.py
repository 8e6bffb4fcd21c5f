"""Which run-time parameters an agent may give which values, and the `options` of a connection."""

from __future__ import annotations

import pytest

from policies.ground.errors import Malformed
from sidecar.protocols.postgres.parameters import (
    Setting,
    milliseconds,
    read_options,
    refusal,
    show_refusal,
    takes_any_value,
)

LIMITS = {"statement_timeout": 30_000}

# The name, the value, and a part of the reason; empty if it is open.
SETTINGS: tuple[tuple[str, str | None, str], ...] = (
    ("search_path", '"$user", public', ""),
    ("timezone", "UTC", ""),
    ("application_name", "x", ""),
    ("client_encoding", "UTF-8", ""),
    ("client_encoding", "'utf-8'", ""),
    ("client_encoding", "LATIN1", "may only be"),
    ("client_encoding", None, ""),
    ("standard_conforming_strings", "on", ""),
    ("standard_conforming_strings", "off", "may only be"),
    ("client_min_messages", "debug5", "may only be"),
    ("client_min_messages", "Warning", ""),
    ("statement_timeout", "30s", ""),
    ("statement_timeout", "30001", "may only be lowered"),
    ("statement_timeout", "0", "may only be lowered"),
    ("statement_timeout", "0.4", "may only be lowered"),
    ("statement_timeout", "soon", "must be a number"),
    ("statement_timeout", None, ""),
    ("lock_timeout", "0", ""),
    ("sluice.user", "alice", ""),
    ("sluice.session_id", None, ""),
    ("sluice.task", "a\nb", "control characters"),
    ("sluice.user_id", "", "1 to 256"),
    ("sluice.agent", "x", "not one of"),
    ("role", "x", "not one of"),
    ("role", None, "not one of"),
    ("session_authorization", "x", "not one of"),
    ("max_parallel_workers_per_gather", "0", "not one of"),
    ("client_connection_check_interval", "0", "not one of"),
    ("backslash_quote", "on", "not one of"),
    ("local_preload_libraries", "x", "not one of"),
    ("app.tenant", "1", "not one of"),
)


def test_a_parameter_is_open_closed_or_bounded() -> None:
    for name, value, reason in SETTINGS:
        found = refusal(Setting(name, value), LIMITS)
        assert (found is None) == (not reason), (name, value)
        assert reason in (found or ""), (name, value)
    assert takes_any_value("jit")
    assert not takes_any_value("statement_timeout")
    assert [Setting(name, "x").attributes for name in ("sluice.user", "sluice.task", "jit")] == [
        "user",
        "task",
        None,
    ]


def test_a_parameter_of_another_program_is_not_shown() -> None:
    assert show_refusal("search_path") is None
    assert show_refusal("sluice.user_id") is None
    assert show_refusal("hnsw.ef_search") is None
    for name in ("all", "app.tenant", "sluice.identity"):
        assert show_refusal(name) is not None, name


def test_durations_are_those_that_the_server_reads() -> None:
    for text, expected in {
        "5000": 5000,
        "5s": 5000,
        " 1.5 min ": 90_000,
        "2h": 7_200_000,
        "1d": 86_400_000,
        "400us": 0,
        "0.6ms": 1,
        ".5s": 500,
        "": None,
        "s": None,
        "1e3": None,
        "0x10": None,
        "010": None,
        "-1": None,
        "5S": None,
        "5 s s": None,
        "1.2.3": None,
        "٥": None,
    }.items():
        assert milliseconds(text) == expected, text


def test_options_hold_harmless_parameters_and_ours() -> None:
    for text, expected in {
        "": (),
        "-c search_path=a": (Setting("search_path", "a"),),
        "  -csearch_path=a\t--sluice.task=b": (
            Setting("search_path", "a"),
            Setting("sluice.task", "b"),
        ),
        r"-c search_path=a\ b\\c": (Setting("search_path", r"a b\c"),),
        "-c sluice.user=al=ice": (Setting("sluice.user", "al=ice"),),
        "--application-name=x": (Setting("application_name", "x"),),
        "-c JIT=off": (Setting("jit", "off"),),
    }.items():
        assert read_options(text, LIMITS) == expected, text


def test_other_options_are_refused() -> None:
    for text in (
        "-c",
        "-c jit",
        "-c =x",
        "-c role=x",
        "-c ROLE=x",
        "-c app.tenant=1",
        "-c statement_timeout=0",
        "-c jit=on -c jit=off",
        "-c jit=on --JIT=off",
        "-d 5",
        "-e",
        "jit=on",
        "-c jit=on \\",
        "--",
        "-c sluice.user=",
    ):
        with pytest.raises(Malformed, match="options"):
            read_options(text, LIMITS)
