"""Lists the routes of agents and API keys."""

from control_api.edge.route import ADMIN, READ, SUPERADMIN, Route
from control_api.registry import agent_operations as agents
from control_api.registry import key_operations as keys

ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/agents", READ, agents.list_agents),
    Route("POST", "/v1/agents", ADMIN, agents.register_agent, 201, errors=(409,)),
    Route("GET", "/v1/agents/stats/summary", READ, agents.show_registry_counts, of_log=True),
    Route("GET", "/v1/agents/{agent_id}", READ, agents.get_agent, of_log=True),
    Route("PUT", "/v1/agents/{agent_id}", ADMIN, agents.update_agent, errors=(409,)),
    Route(
        "PATCH", "/v1/agents/{agent_id}/status", ADMIN, agents.change_agent_status, errors=(409,)
    ),
    Route("GET", "/v1/keys", READ, keys.list_keys),
    Route("POST", "/v1/keys", ADMIN, keys.create_key, 201, errors=(409,)),
    Route("GET", "/v1/keys/{key_id}", READ, keys.get_key),
    Route("DELETE", "/v1/keys/{key_id}", ADMIN, keys.revoke_key),
    Route("PATCH", "/v1/keys/{key_id}/binding", ADMIN, keys.bind_key),
    Route("POST", "/v1/keys/{key_id}/rotate", ADMIN, keys.rotate_key, 201, errors=(409,)),
    Route(
        "POST", "/v1/admin/tenants/{tenant_id}/keys", SUPERADMIN, keys.provision_key, 201, (409,)
    ),
)
