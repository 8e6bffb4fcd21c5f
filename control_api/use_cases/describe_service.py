"""What the service says of itself: its description, a page to read it at, and its figures."""

from control_api.asked import Nothing
from control_api.metrics import CONTENT_TYPE, exposition
from control_api.service import Service
from control_api.shapes import Document


async def show_openapi(service: Service, _caller: None, _: Nothing) -> Document:
    """Describe the API (OpenAPI 3.1)."""
    return Document("application/json", service.description.openapi)


async def show_docs(service: Service, _caller: None, _: Nothing) -> Document:
    """Show a page to read the description at; it loads nothing from the network."""
    return Document("text/html; charset=utf-8", service.description.page)


async def show_metrics(service: Service, _caller: None, _: Nothing) -> Document:
    """Show the metrics as Prometheus text."""
    if service.siblings is not None:
        return Document(CONTENT_TYPE, await service.siblings.exposition())
    return Document(CONTENT_TYPE, exposition(service.registry))
