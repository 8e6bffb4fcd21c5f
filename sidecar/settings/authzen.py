"""The settings for AuthZEN, with a sentence per field. Knows no files and no YAML."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from policies.definitions.model import Sensitivity

Scalar = str | int | float | bool | None
"""A JSON scalar."""


@dataclass(frozen=True, slots=True)
class ResourceRule:
    """How a resource of the request becomes a source. The first rule that matches holds."""

    type: str
    """The `type` of the resources that it matches."""
    id: str = "*"
    """The pattern of their ids, by default of all: `*` is any run of characters, `?` exactly
    one."""
    when: Mapping[str, Scalar] = field(default_factory=dict)
    """Members that the resource's `properties` must have, each with a scalar of the same type and
    value; a member that is missing does not match."""
    source_id: str | None = None
    """The source id that policies use, with `{type}` and `{id}` filled in; by default the `id` of a
    resource of the type `source`, and `<type>://<id>` of any other."""
    sensitivity: Sensitivity | None = None
    """The sensitivity of what it matches, which a property of the resource can only raise; without
    either it is `critical`."""


@dataclass(frozen=True, slots=True)
class ActionRule:
    """An action that counts as reading. The first rule that matches holds."""

    name: str
    """The `name` of the action that it matches."""
    when: Mapping[str, Scalar] = field(default_factory=dict)
    """Members that the action's `properties` must have, each with a scalar of the same type and
    value; a member that is missing does not match."""
    task: str | None = None
    """The task that policies judge by `allowed_tasks` and `denied_tasks`; without it, the request
    may name one."""


READING = (
    "read",
    "retrieve",
    "get",
    "list",
    "search",
    "query",
    "fetch",
    "view",
    "can_read",
    "can_view",
    "GET",
    "HEAD",
    "tools/call",
    "resources/read",
    "prompts/get",
)
"""The actions that count as reading unless the operator lists others."""


@dataclass(frozen=True, slots=True)
class AuthzenSettings:
    """How requests of the AuthZEN API are mapped to retrievals, and what its metadata says."""

    url: str | None = None
    """The address of this decision point as its clients know it, such as `https://pdp.example.com`;
    without it there is no metadata."""
    signing_key_file: Path | None = None
    """A file with the private key that signs the metadata, Ed25519 or P-256, as unencrypted PEM
    (PKCS 8); without it the metadata is not signed, and there is no key set."""
    subject_types: tuple[str, ...] = ("agent",)
    """The types of subjects whose id is an `agent_id`."""
    role_property: str = "role"
    """The member of the subject's `properties` that names its role."""
    resources: tuple[ResourceRule, ...] = ()
    """Which source a resource is, and how sensitive; the first rule that matches holds."""
    actions: tuple[ActionRule, ...] = tuple(map(ActionRule, READING))
    """The actions that may be allowed, since they count as reading; any other is denied. A list
    replaces the default: `read`, `retrieve`, `get`, `list`, `search`, `query`, `fetch`, `view`,
    `can_read`, `can_view`, `GET`, `HEAD`, `tools/call`, `resources/read` and `prompts/get`."""
