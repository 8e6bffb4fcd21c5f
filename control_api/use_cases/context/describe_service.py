"""Serves the description of the API, the `/docs` page and the metrics."""

from control_api.app_context import AppContext
from control_api.metrics.metrics import CONTENT_TYPE, exposition
from control_api.requests.base import EmptyRequest
from control_api.responses.audit import Document, Redirect


async def show_openapi(app: AppContext, _caller: None, _: EmptyRequest) -> Document:
    """Describe the API (OpenAPI 3.1)."""
    return (await app.describe()).openapi


async def show_docs(app: AppContext, _caller: None, _: EmptyRequest) -> Document:
    """Show a page to read the description and try operations; it loads nothing else."""
    return (await app.describe()).page


async def show_start(app: AppContext, _caller: None, _: EmptyRequest) -> Redirect:
    """Redirect a browser to the console, or to `/docs` if that is switched off."""
    return Redirect("console" if app.settings.console else "docs")


async def show_metrics(app: AppContext, _caller: None, _: EmptyRequest) -> Document:
    """Show the metrics as Prometheus text."""
    # With several workers, the one that is scraped answers for all of them.
    if app.peer_metrics is not None:
        return Document(CONTENT_TYPE, await app.peer_metrics.exposition())
    return Document(CONTENT_TYPE, exposition(app.registry))
