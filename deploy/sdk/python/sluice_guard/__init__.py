"""Asks Sluice before an agent reads data, and lets the read run only on an ALLOW.

    guard          `Guard`: checks a source, and wraps functions, tools and retrievers with a check
    gate           a check on each call of one function
    wrapping       wraps functions, coroutines and generators with a gate
    decisions      a decision, the errors, and which responses count as a decision
    question       the body of a check's request, as JSON
    settings       the environment variables of `Guard.from_environ`
    attribution    the user, session and task that the agent acts for in the current context
    exchange       one HTTP/1.1 request and its response, without I/O
    connections    sends requests over kept connections, each within one deadline
    async_connections   the same in an event loop
    endpoint       what both share: the address, failures, forks
    langchain      wraps a retriever of LangChain
    llama_index    a node postprocessor of LlamaIndex

Nothing is decided in this process. A framework is imported only when one of its parts is wrapped.
"""

from sluice_guard.attribution import acting, propagation_headers
from sluice_guard.decisions import (
    Decision,
    Denied,
    Misconfigured,
    NotAllowed,
    Sensitivity,
    Unavailable,
)
from sluice_guard.guard import Guard
from sluice_guard.settings import UnusableSettings

__all__ = [
    "Decision",
    "Denied",
    "Guard",
    "Misconfigured",
    "NotAllowed",
    "Sensitivity",
    "Unavailable",
    "UnusableSettings",
    "acting",
    "propagation_headers",
]
