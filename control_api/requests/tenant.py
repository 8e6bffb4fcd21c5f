"""Names a tenant in a request. Knows nothing of the store."""

from control_api.requests.base import Identifier, RequestModel


class TenantRequest(RequestModel):
    """Names one tenant."""

    tenant_id: Identifier
