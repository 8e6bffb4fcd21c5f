"""The routes of agents and keys."""

from control_api.edge.route import ADMIN, READ, SUPERADMIN, Route
from control_api.registry.agent_operations import (
    change_agent_status,
    get_agent,
    list_agents,
    register_agent,
    show_registry_counts,
    update_agent,
)
from control_api.registry.key_operations import (
    bind_key,
    create_key,
    get_key,
    list_keys,
    provision_key,
    revoke_key,
    rotate_key,
)

ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/agents", READ, list_agents),
    Route("POST", "/v1/agents", ADMIN, register_agent, 201, errors=(409,)),
    Route("GET", "/v1/agents/stats/summary", READ, show_registry_counts, of_log=True),
    Route("GET", "/v1/agents/{agent_id}", READ, get_agent, of_log=True),
    Route("PUT", "/v1/agents/{agent_id}", ADMIN, update_agent, errors=(409,)),
    Route("PATCH", "/v1/agents/{agent_id}/status", ADMIN, change_agent_status, errors=(409,)),
    Route("GET", "/v1/keys", READ, list_keys),
    Route("POST", "/v1/keys", ADMIN, create_key, 201, errors=(409,)),
    Route("GET", "/v1/keys/{key_id}", READ, get_key),
    Route("DELETE", "/v1/keys/{key_id}", ADMIN, revoke_key),
    Route("PATCH", "/v1/keys/{key_id}/binding", ADMIN, bind_key),
    Route("POST", "/v1/keys/{key_id}/rotate", ADMIN, rotate_key, 201, errors=(409,)),
    Route("POST", "/v1/admin/tenants/{tenant_id}/keys", SUPERADMIN, provision_key, 201, (409,)),
)
