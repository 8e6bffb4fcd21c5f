"""Which sources the policies of some roles allow: read from files or from a service, and decided by
the core's own function.

A login serves every agent and task of its sidecar, so a source counts as allowed if any call of one
of the roles is. `--agent` and `--task` narrow these calls.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence

from deploy.commands.policy.service import add_service, connect, names_service
from deploy.commands.policy.sources import Unusable, read
from policies.analysis.access import Access, AccessQuery, example
from policies.definitions.definition import shown
from policies.definitions.model import Policy, Sensitivity
from policies.evaluate import evaluate_admitted
from policies.ground.process.api_client import ServiceUnusable
from policies.levels import highest
from policies.retrieval import Retrieval
from policies.sets.role import Role, compile_role
from policies.sets.source_levels import SourceLevels, sources_document

POLICIES, SOURCES = "/v1/policies", "/v1/sources"
NOT_APPLIED = "The registry was not asked: of its agents, only approved ones may read."


def add_policies(command: argparse.ArgumentParser) -> None:
    """Add the options that name the roles and the policies."""
    group = command.add_argument_group("the policies")
    group.add_argument(
        "--role",
        metavar="ROLE",
        required=True,
        action="append",
        help="a role in which the sidecar's agents act; may be repeated",
    )
    group.add_argument("--agent", metavar="ID", help="only calls by this agent")
    group.add_argument("--task", help="only calls for this task")
    group.add_argument(
        "--policies", metavar="PATH", help="a directory, a file, or git:REV:PATH, without a service"
    )
    group.add_argument("--tenant", metavar="ID", help="which of the directory's tenants")
    add_service(command)


class Permissions:
    """Decides which sources some call of the roles may read."""

    def __init__(
        self,
        policies: Iterable[Policy],
        roles: Sequence[str],
        agent: str | None = None,
        task: str | None = None,
        levels: SourceLevels | None = None,
    ) -> None:
        """`levels` are those that the tenant states for its sources. Raises `Unusable` for a role
        without a policy, and `TooManyClasses`."""
        every = list(policies)
        self._levels = levels
        self._calls = [each for role in roles for each in _calls(role, every, agent, task)]

    def allowed_by(self, source_id: str, level: Sensitivity) -> str | None:
        """Return the name of a policy that allows some call to read the source, whose level in the
        sidecar's settings is `level`; None if no call may."""
        stated = None if self._levels is None else self._levels.level(source_id)
        effective = highest(level, stated) or level
        for call, role in self._calls:
            asked = call._replace(source_id=source_id, sensitivity_level=effective)
            answer = evaluate_admitted(asked, role)
            if answer.decision == "ALLOW":
                return answer.policy_name
        return None


def read_permissions(options: argparse.Namespace) -> Permissions:
    """Return what the policies that the options name allow. Raises `Unusable`, `TooManyClasses`,
    and `ServiceUnusable` if a service was named."""
    if options.policies and options.url:
        raise Unusable("--policies and --url: give one of the two")
    if options.policies:
        policies, levels = read(options.policies, options.tenant), None
    elif names_service(options):
        policies, levels = _of_service(options)
    else:
        raise Unusable("name the policies, --policies PATH, or the service, --url URL")
    return Permissions(policies, options.role, options.agent, options.task, levels)


def _of_service(options: argparse.Namespace) -> tuple[list[Policy], SourceLevels | None]:
    api = connect(options)
    try:
        policies = [Policy.from_wire(row) for page in api.pages(POLICIES, {}) for row in page]
        stated = {
            row["source_pattern"]: row["sensitivity_level"]
            for page in api.pages(SOURCES, {})
            for row in page
        }
        document = sources_document(stated)
        return policies, None if document is None else SourceLevels(document)
    except (KeyError, TypeError, ValueError) as error:
        raise ServiceUnusable("the service's lists have another form: is it older?") from error


def _calls(
    role: str, every: Sequence[Policy], agent: str | None, task: str | None
) -> Iterator[tuple[Retrieval, Role]]:
    """Yield one call of the role for each group of agents and tasks that its policies treat alike;
    the source and the level are to be replaced."""
    own = [each for each in every if each.agent_role == role]
    if not own:
        raise Unusable(f"the role {shown(role)} has no policy: nothing is allowed")
    compiled = compile_role(role, own)
    query = AccessQuery((agent,) if agent else (), (task,) if task else ())
    access = Access(own, query=query)
    space = access.space
    agents = space.agents_of(query.agents) if agent else None
    tasks = space.tasks_of(query.tasks) if task else None
    for calls in access.calls(agents, tasks):
        sources = space.source_names.everything
        yield example(role, calls.agents, calls.tasks, sources, "low", space), compiled
