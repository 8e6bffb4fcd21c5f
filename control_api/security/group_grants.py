"""What the groups of an identity provider may do here, as `SLUICE_OIDC_GROUPS` lists it.

    <group>=<scope>@<tenant>, <group>=superadmin, …

Pure: parses the setting, and answers what a person in some of these groups may do.
"""

from collections.abc import Collection
from dataclasses import dataclass

from policies.ground.json_body import identifier_fault

SUPERADMIN = "superadmin"
STRENGTH = {"read": 0, "admin": 1}
"""The scopes that a person may have in a tenant, by their strength. The other scopes are those of
programs: agents evaluate, and sidecars enforce."""


@dataclass(frozen=True, slots=True)
class GroupGrant:
    """What one group may do: `scope` in `tenant_id`, or everything as superadmin if that is
    None."""

    group: str
    scope: str
    tenant_id: str | None


@dataclass(frozen=True, slots=True)
class GroupGrants:
    """All grants. A person may have several groups, and a group several grants."""

    grants: tuple[GroupGrant, ...] = ()

    def strongest(self, groups: Collection[str]) -> tuple[GroupGrant, ...]:
        """What a person in these groups may do: for each tenant, and for the superadmin, the grant
        of the strongest scope; of several, the first of the setting."""
        found: dict[str | None, GroupGrant] = {}
        for each in self.grants:
            if each.group not in groups:
                continue
            before = found.get(each.tenant_id)
            if before is None or _strength(each) > _strength(before):
                found[each.tenant_id] = each
        return tuple(found.values())


def _strength(grant: GroupGrant) -> int:
    return STRENGTH.get(grant.scope, 0)


def parse_group_grants(text: str) -> GroupGrants:
    """Parses the setting. Raises `ValueError` with everything that is wrong."""
    faults: list[str] = []
    grants: list[GroupGrant] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        # The last `=`: the name of a group may hold one.
        group, equals, granted = (part.strip() for part in entry.rpartition("="))
        scope, at, tenant_id = granted.partition("@")
        grant = GroupGrant(group, scope, tenant_id if at else None)
        if not equals or not group or not (at or scope == SUPERADMIN):
            faults.append(f"`{entry}` is not `<group>=<scope>@<tenant>` or `<group>=superadmin`")
        elif at and scope not in STRENGTH:
            faults.append(f"`{entry}`: the scope must be {' or '.join(STRENGTH)}, not `{scope}`")
        elif at and (fault := identifier_fault(tenant_id)):
            faults.append(f"`{entry}`: the tenant {fault}")
        elif grant in grants:
            faults.append(f"`{entry}` is listed twice")
        grants.append(grant)
    if faults:
        raise ValueError("; ".join(faults))
    return GroupGrants(tuple(grants))
