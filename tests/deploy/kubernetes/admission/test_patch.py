"""The patch's two operations, compared with an independent implementation of RFC 6902."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import jsonpatch
import jsonpointer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.kubernetes.admission.injection import Patch, PatchFailed, apply, pointer

KEYS = st.sampled_from(["a", "b", "0", "-", "a/b", "m~n", "~1", "", "é", " "])
DOCUMENTS = st.dictionaries(
    KEYS,
    st.recursive(
        st.none() | st.integers(0, 9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=12,
    ),
    max_size=4,
)
PATHS = st.lists(KEYS | st.integers(0, 4), min_size=1, max_size=4).map(tuple)


@st.composite
def operations(draw: st.DrawFn) -> dict[str, Any]:
    path = pointer(draw(PATHS))
    if draw(st.booleans()):
        return {"op": "add", "path": path, "value": draw(st.integers(0, 9))}
    return {"op": "move", "from": pointer(draw(PATHS)), "path": path}


def outcome(change: Any) -> Any:
    try:
        return change()
    except (PatchFailed, jsonpatch.JsonPatchException, jsonpointer.JsonPointerException):
        return "failed"


@pytest.mark.parametrize(
    "asked",
    [
        {"op": "add", "path": "/a/0", "value": 9},
        {"op": "add", "path": "/a/-", "value": 9},
        {"op": "add", "path": "/a/3", "value": 9},
        {"op": "add", "path": "/b/m~0n", "value": 9},
        {"op": "add", "path": "/b/a~1b", "value": 9},
        {"op": "add", "path": "/b/~01", "value": 9},
        {"op": "add", "path": "/b/~10/x", "value": 9},
        {"op": "add", "path": "/b/ ", "value": 9},
        {"op": "add", "path": "//", "value": 9},
        {"op": "add", "path": "/c/d", "value": 9},
        {"op": "add", "path": "/a/01", "value": 9},
        {"op": "move", "from": "/a/2", "path": "/a/0"},
        {"op": "move", "from": "/a/0", "path": "/a/2"},
        {"op": "move", "from": "/b/m~0n", "path": "/c"},
        {"op": "move", "from": "/c", "path": "/b"},
        {"op": "move", "from": "/a/3", "path": "/b"},
    ],
)
def test_each_operation_has_the_result_of_another_implementation(asked: dict[str, Any]) -> None:
    document: dict[str, Any] = {"a": [1, 2, 3], "b": {"m~n": 4, "a/b": 5}}
    before = deepcopy(document)
    ours = outcome(lambda: apply(document, [asked]))
    assert document == before
    assert ours == outcome(lambda: jsonpatch.apply_patch(document, [asked]))


@pytest.mark.deep(stands_in="test_each_operation_has_the_result_of_another_implementation")
@given(DOCUMENTS, st.lists(operations(), max_size=3))
def test_the_result_is_that_of_another_implementation(
    document: dict[str, Any], asked: list[dict[str, Any]]
) -> None:
    before = deepcopy(document)
    ours = outcome(lambda: apply(document, asked))
    assert document == before
    if any(
        "from" in each and (each["path"] + "/").startswith(each["from"] + "/") for each in asked
    ):
        # RFC 6902, section 4.4 forbids to move a value into itself; implementations differ.
        return
    assert ours == outcome(lambda: jsonpatch.apply_patch(document, asked))


@pytest.mark.parametrize(
    ("path", "written"),
    [
        (("a/b", "m~n"), "/a~1b/m~0n"),
        (("~1",), "/~01"),
        (("metadata", "annotations", "sluice/status"), "/metadata/annotations/sluice~1status"),
        (("x", 0, "-"), "/x/0/-"),
        ((), ""),
    ],
)
def test_a_path_is_escaped(path: tuple[str | int, ...], written: str) -> None:
    assert pointer(path) == written


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/a", "value": 1},
        {"op": "add", "path": "", "value": {}},
        {"op": "add", "path": "/list/01", "value": 1},
        {"op": "add", "path": "/list/-1", "value": 1},
        {"op": "add", "path": "/list/3", "value": 1},
        {"op": "add", "path": "/list/" + "9" * 5000, "value": 1},
        {"op": "add", "path": "/list/²", "value": 1},
        {"op": "add", "path": "/missing/x", "value": 1},
        {"op": "add", "path": "/none/x", "value": 1},
        {"op": "move", "from": "/list/2", "path": "/a"},
        {"op": "move", "from": "/list/-", "path": "/a"},
    ],
)
def test_a_patch_that_the_api_server_would_refuse_fails(operation: dict[str, Any]) -> None:
    with pytest.raises(PatchFailed):
        apply({"a": 1, "list": [1, 2], "none": None}, [operation])


def test_the_patch_grows_with_its_document() -> None:
    given_document: dict[str, Any] = {"list": ["b"]}
    patch = Patch(given_document)
    patch.add(("list", "-"), "a")
    patch.move(("list", 1), ("list", 0))
    assert patch.document == {"list": ["a", "b"]}
    assert apply(given_document, patch.operations) == patch.document
    assert given_document == {"list": ["b"]}
