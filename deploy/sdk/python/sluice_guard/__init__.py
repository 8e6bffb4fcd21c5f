"""Asks Sluice before an agent reads data, and runs nothing without an ALLOW.

    guard          `Guard`: the questions, and what can be put behind them
    decisions      a decision, the errors, and which answers count as a decision
    question       what is asked, as JSON
    settings       what `Guard.from_environ` reads
    attribution    for whom the agent acts: user, session and task of the current context
    wrapping       functions, coroutines and generators behind a `gate`, which asks on each call
    exchange       one HTTP/1.1 request and its answer, without I/O
    connections    sends it, over connections that are kept, within one deadline
    async_connections   the same in an event loop
    endpoint       what both share: the address, failures, forks
    langchain      a retriever of LangChain behind a decision
    llama_index    a node postprocessor of LlamaIndex

Nothing is decided in this process. A framework is imported when something of it is made.
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
