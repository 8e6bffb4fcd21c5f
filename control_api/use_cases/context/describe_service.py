"""What the service says of itself: its description, a page to read it at, and its figures."""

from control_api.app_context import AppContext
from control_api.metrics.metrics import CONTENT_TYPE, exposition
from control_api.requests.base import EmptyRequest
from control_api.responses.audit import Document, Redirect


async def show_openapi(service: AppContext, _caller: None, _: EmptyRequest) -> Document:
    """Describe the API (OpenAPI 3.1)."""
    return service.description.openapi


async def show_docs(service: AppContext, _caller: None, _: EmptyRequest) -> Document:
    """Show a page to read the description and try operations; it loads nothing from elsewhere."""
    return service.description.page


async def show_start(_service: AppContext, _caller: None, _: EmptyRequest) -> Redirect:
    """Lead a browser to `/docs`."""
    return Redirect("docs")


async def show_metrics(service: AppContext, _caller: None, _: EmptyRequest) -> Document:
    """Show the metrics as Prometheus text."""
    if service.siblings is not None:
        return Document(CONTENT_TYPE, await service.siblings.exposition())
    return Document(CONTENT_TYPE, exposition(service.registry))
