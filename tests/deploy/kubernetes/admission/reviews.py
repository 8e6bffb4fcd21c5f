"""AdmissionReviews for tests, as an API server sends them."""

from __future__ import annotations

import json
from typing import Any


def review(**changed: Any) -> dict[str, Any]:
    """A review as a 1.33 API server sends it; `changed` are fields of its request."""
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop",
            "operation": "CREATE",
            "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
            "object": {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}},
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
            **changed,
        },
    }


def encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
