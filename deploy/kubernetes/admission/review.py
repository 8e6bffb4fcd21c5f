"""Parses AdmissionReviews (`admission.k8s.io/v1`), and writes the responses. Pure: knows the wire
format, but not HTTP or the injected parts.

The API server writes canonical JSON. So a duplicate key, a single value instead of an object, or a
very deep tree shows that the request came from elsewhere. Such a request is refused before anything
in it is used.
"""

import base64
from dataclasses import dataclass
from typing import Any

import orjson

from deploy.kubernetes.admission.vocabulary import Verdict
from policies.ground.canonical import parse_object, refuse_duplicates
from policies.ground.errors import Malformed

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
MAX_DEPTH = 254
"""The most nested levels of objects and lists, as many as orjson writes. A pod has about ten."""
MAX_OBJECTS = 100_000
"""The most objects and lists in a body, counted by their opening brackets. A body that is small on
the wire can be large in memory, and slow to parse; the largest pod that the API server can store
has half as many."""
MAX_UID = 128
MAX_WARNINGS = 8
# kubectl shows at most 256 characters of a warning, and the API server at most 4,096 of all.
MAX_WARNING = 256
_FORBIDDEN = 403


@dataclass(frozen=True, slots=True)
class Review:
    """One AdmissionReview request. `pod` is None if the object is not a pod that is being
    created."""

    uid: str
    namespace: str
    kind: str
    operation: str
    pod: dict[str, Any] | None
    dry_run: bool
    user: str
    """The user whose request the API server is reviewing, for the log."""

    @property
    def is_pod(self) -> bool:
        return self.kind == "Pod"

    @property
    def pod_name(self) -> str:
        """The pod's namespace and name, for the log. A pod that a controller creates has only the
        beginning of a name at this point."""
        found = self.pod.get("metadata") if self.pod else None
        metadata = found if isinstance(found, dict) else {}
        name = metadata.get("name") or metadata.get("generateName") or ""
        return f"{self.namespace[:64]}/{str(name)[:128]}"


def parse(raw: bytes, content_type: str | None) -> Review:
    """Parse an AdmissionReview. Raises `Malformed`, whose message says what was expected."""
    if raw.count(b"{") + raw.count(b"[") > MAX_OBJECTS:
        raise Malformed(f"the body has more than {MAX_OBJECTS} objects and lists")
    body = parse_object(raw, content_type, unique=False)
    found = f"{_text(body, 'apiVersion')}, {_text(body, 'kind')}"
    if found != f"{API_VERSION}, {KIND}":
        raise Malformed(f"the body is `{found[:128]}`, not `{API_VERSION}, {KIND}`")
    _refuse_odd_trees(body, raw)
    request = _object(body, "request")
    uid = _text(request, "uid")
    if not 1 <= len(uid) <= MAX_UID:
        raise Malformed(f"`request.uid` has {len(uid)} characters, not 1 to {MAX_UID}")
    kind = _object(request, "kind")
    # A group would make it another API's `Pod`, with other fields.
    is_pod = (_text(kind, "group"), _text(kind, "kind")) == ("", "Pod")
    operation, sub_resource = _text(request, "operation"), _text(request, "subResource")
    created = is_pod and operation == "CREATE" and not sub_resource
    user = request.get("userInfo")
    return Review(
        uid=uid,
        namespace=_text(request, "namespace"),
        kind="Pod" if is_pod else "another",
        operation=operation,
        pod=_object(request, "object") if created else None,
        # Anything but a plain `false` counts as a dry run, which leaves no trace.
        dry_run=request.get("dryRun", False) is not False,
        user=_text(user, "username") if isinstance(user, dict) else "",
    )


def answer(uid: str, verdict: Verdict) -> bytes:
    """Return the response to the review `uid`: an AdmissionReview with the verdict, as JSON."""
    response: dict[str, Any] = {"uid": uid, "allowed": verdict.admitted}
    if verdict.patch and verdict.admitted:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(verdict.patch)).decode()
    if not verdict.admitted:
        response["status"] = {"code": _FORBIDDEN, "message": verdict.message}
    if verdict.warnings:
        response["warnings"] = [each[:MAX_WARNING] for each in verdict.warnings[:MAX_WARNINGS]]
    return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _refuse_odd_trees(body: dict[str, Any], raw: bytes) -> None:
    """Raise `Malformed` if `body` is nested too deep, or if `raw` has a duplicate key anywhere."""
    try:
        written = orjson.dumps(body)
    except orjson.JSONEncodeError:
        # The only cause, in what was just parsed: orjson writes 254 levels, and reads 1,024. The
        # code that follows may recurse, and Python's stack ends at a thousand frames.
        raise Malformed(f"the body is nested deeper than {MAX_DEPTH} levels") from None
    # Written out again, a parsed object has each key once. If that gives the same bytes, they had
    # no duplicate either; this costs a twentieth of reading them a second time. Texts with `<`,
    # `>` or `&`, which the API server escapes, take the long way.
    if written != raw.rstrip():
        refuse_duplicates(raw)


def _object(parent: dict[str, Any], name: str) -> dict[str, Any]:
    value = parent.get(name)
    if not isinstance(value, dict):
        raise Malformed(f"`{name}` is not an object")
    return value


def _text(parent: dict[str, Any], name: str) -> str:
    """Return the text under `name`; empty if it is absent, since the API server leaves out empty
    texts. Raises `Malformed` for a value of another type."""
    value = parent.get(name, "")
    if not isinstance(value, str):
        raise Malformed(f"`{name}` is not a string")
    return value
