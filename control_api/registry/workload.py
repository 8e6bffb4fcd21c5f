"""The name of a workload: a Kubernetes service account, with the cluster that vouches for it.

Knows the form of the name. Knows no token and no agent.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

# Issuers are URLs without a space. Names of namespaces are DNS labels, and those of service
# accounts DNS subdomains (Kubernetes, "Object Names and IDs").
_PATTERN = "[!-~]{1,256}:system:serviceaccount:[a-z0-9-]{1,63}:[a-z0-9][a-z0-9.-]{0,252}"
_FORM = re.compile(_PATTERN + r"\Z")
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_ACCOUNT = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z")


def _workload(text: str) -> str:
    if not _FORM.match(text):
        raise ValueError("must be `<issuer>:system:serviceaccount:<namespace>:<service account>`")
    return text


Workload = Annotated[
    str,
    AfterValidator(_workload),
    WithJsonSchema({"type": "string", "maxLength": 1024, "pattern": f"^{_PATTERN}$"}),
]
"""`<issuer>:system:serviceaccount:<namespace>:<service account>`."""


def workload_of(issuer: str, namespace: str, account: str) -> str:
    return f"{issuer}:{subject_of(namespace, account)}"


def subject_of(namespace: str, account: str) -> str:
    """The `sub` of a service account's token."""
    return f"system:serviceaccount:{namespace}:{account}"


def is_namespace(text: object) -> bool:
    return isinstance(text, str) and bool(_NAMESPACE.match(text))


def is_account(text: object) -> bool:
    """Whether it can be the name of a service account or of a pod."""
    return isinstance(text, str) and bool(_ACCOUNT.match(text))
