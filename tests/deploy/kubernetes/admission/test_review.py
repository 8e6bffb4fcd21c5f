"""AdmissionReviews as they come from the API server, and as they don't."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from deploy.kubernetes.admission.review import MAX_DEPTH, answer, parse
from deploy.kubernetes.admission.vocabulary import Outcome, Verdict
from policies.ground.errors import Malformed
from tests.deploy.kubernetes.admission.reviews import encoded, review

JSON = "application/json"


def nested(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"a": found}
    return found


def test_a_review_of_a_created_pod_is_read() -> None:
    read = parse(encoded(review()), JSON)
    assert read.pod == {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}
    assert (read.uid[:8], read.namespace, read.dry_run, read.is_pod) == (
        "705ab4f5",
        "shop",
        False,
        True,
    )
    assert read.user.endswith(":replicaset-controller")


@pytest.mark.parametrize(
    "changed",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"subResource": "ephemeralcontainers"},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
        {"kind": {"group": "example.com", "version": "v1", "kind": "Pod"}},
    ],
)
def test_a_review_of_anything_but_a_created_pod_has_no_pod(changed: dict[str, Any]) -> None:
    assert parse(encoded(review(**changed)), JSON).pod is None


@pytest.mark.parametrize("value", [True, None, "false", 0])
def test_anything_but_false_is_a_dry_run(value: object) -> None:
    assert parse(encoded(review(dryRun=value)), JSON).dry_run


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not JSON"),
        (b"null", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b"{", "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b"{}", "not `admission.k8s.io/v1, AdmissionReview`"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a":' * 100_000, "not JSON"),
        (b'{"a":[' + b"{}," * 100_000 + b"{}]}", "more than 100000 objects"),
        (encoded({**review(), "apiVersion": "admission.k8s.io/v1beta1"}), "v1beta1"),
        (encoded({**review(), "kind": "ConversionReview"}), "ConversionReview"),
        (encoded({**review(), "kind": 7}), "`kind` is not a string"),
        (encoded({**review(), "request": None}), "`request` is not an object"),
        (encoded({**review(), "request": []}), "`request` is not an object"),
        (encoded(review(uid="")), "`request.uid` has 0 characters"),
        (encoded(review(uid="u" * 129)), "`request.uid` has 129 characters"),
        (encoded(review(uid=["u"])), "`uid` is not a string"),
        (encoded(review(kind="Pod")), "`kind` is not an object"),
        (encoded(review(object=None)), "`object` is not an object"),
        (encoded(review(object="{}")), "`object` is not an object"),
        (encoded(review(namespace=1)), "`namespace` is not a string"),
        (encoded(review(object=nested(MAX_DEPTH))), "nested deeper"),
        (encoded(review(object=nested(900))), "nested"),
        (encoded(review()).replace(b'"shop"', b'"shop","namespace":"bank"'), "duplicate key"),
        (
            encoded(review()).replace(b'"containers"', b'"containers":[],"containers"'),
            "duplicate key `containers`",
        ),
    ],
)
def test_an_unreadable_review_is_refused_with_the_cause(raw: bytes, said: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse(raw, JSON)
    assert said in caught.value.message
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("spaced", [b" ", b"\n", b"\\u003c"])
def test_a_duplicate_key_is_found_by_either_parser(spaced: bytes) -> None:
    """The short way compares bytes; spaces and escapes lead to the long one."""
    raw = encoded(review(object={"kind": "Pod", "metadata": {"name": "x"}}))
    name = spaced if spaced.startswith(b"\\") else b""
    raw = raw.replace(b'"name":"x"', b'"name":"x' + name + b'"') + (b"" if name else spaced)
    assert parse(raw, None).pod is not None
    with pytest.raises(Malformed, match="duplicate key `name`"):
        parse(raw.replace(b'"name":', b'"name":"y","name":'), None)


def test_another_content_type_is_malformed() -> None:
    with pytest.raises(Malformed, match="not JSON"):
        parse(encoded(review()), "application/vnd.kubernetes.protobuf")


def test_a_tree_just_within_the_limit_is_read() -> None:
    # Two levels are the review's own.
    assert parse(encoded(review(object=nested(MAX_DEPTH - 3))), None).pod is not None


def test_a_patch_is_sent_in_base64_under_the_same_uid() -> None:
    patch = ({"op": "add", "path": "/spec/initContainers", "value": []},)
    sent = json.loads(answer("u-1", Verdict(Outcome.injected, patch, warnings=("w" * 300,))))
    assert (sent["apiVersion"], sent["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = sent["response"]
    assert json.loads(base64.b64decode(response.pop("patch"))) == list(patch)
    assert response == {
        "uid": "u-1",
        "allowed": True,
        "patchType": "JSONPatch",
        "warnings": ["w" * 256],
    }


def test_an_empty_patch_is_left_out() -> None:
    # The API server refuses a `patchType` without a `patch`.
    sent = json.loads(answer("u-1", Verdict(Outcome.unchanged)))
    assert sent["response"] == {"uid": "u-1", "allowed": True}


def test_a_refusal_has_a_reason_and_no_patch() -> None:
    patch = ({"op": "add", "path": "/a", "value": 1},)
    sent = json.loads(answer("u-1", Verdict(Outcome.refused, patch, message="hostNetwork is set")))
    assert sent["response"] == {
        "uid": "u-1",
        "allowed": False,
        "status": {"code": 403, "message": "hostNetwork is set"},
    }
