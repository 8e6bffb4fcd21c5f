"""Bedrock receives no name of a knowledge base, agent or object that may not be read, in any
spelling: in the path, at any depth of the body, as an identifier, an ARN or an address, escaped or
not."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from sidecar.settings.model import Aws
from tests.sidecar.own_loop import kept_open
from tests.sidecar.protocols.aws import ACCESS, REGION, SECRET, credentials_file, fault
from tests.sidecar.protocols.bedrock.server import OPEN, SHUT
from tests.sidecar.protocols.shared.signing_front import SigningFront, signing_front
from tests.sidecar.proxy.raw_client import ask
from tests.support.properties import examples
from tests.support.proxy import policy
from tests.support.scripted_source import Seen, answer

ARN = "arn:aws:bedrock:eu-west-1:123456789012"
# A member and its possible values, valid or not.
RIGHT = [
    ("knowledgeBaseId", OPEN), ("knowledgeBaseArn", f"{ARN}:knowledge-base/{OPEN}"),
    ("agentAliasArn", f"{ARN}:agent-alias/{OPEN}/ALIAS00001"), ("uri", "s3://open/k"),
    ("memoryId", "m"), ("lambda", "arn:aws:lambda:x:1:function:f"), ("text", "t"),
]  # fmt: skip
WRONG = [
    ("knowledgeBaseId", SHUT), ("knowledgeBaseId", SHUT.lower()), ("KnowledgeBaseId", SHUT),
    ("knowledgeBaseId", f"{ARN}:knowledge-base/{SHUT}"), ("knowledgeBaseId", [SHUT]),
    ("knowledgeBaseId", {"knowledgeBaseId": SHUT}), ("knowledgeBaseId", None),
    ("knowledgeBaseArn", f"{ARN}:knowledge-base/{SHUT}"), ("knowledgeBaseArn", SHUT),
    ("knowledgeBaseArn", f"{ARN}:knowledge-base/{OPEN}/../{SHUT}"), ("KNOWLEDGEBASEID", SHUT),
    ("agentAliasArn", f"{ARN}:agent-alias/{SHUT}/ALIAS00001"), ("memoryId", SHUT),
    ("uri", f"s3://{SHUT.lower()}/k"), ("uri", f"s3://open/../{SHUT}"), ("lambda", SHUT),
    ("uri", f"S3://{SHUT.lower()}/k"), ("s3BucketName", SHUT.lower()), ("s3ObjectKey", SHUT),
    ("sessionId", SHUT), ("nextToken", SHUT), ("executionId", SHUT),
]  # fmt: skip
REFERENCES = (
    "knowledgebaseid", "knowledgebasearn", "agentaliasarn", "memoryid", "s3bucketname", "lambda",
)  # fmt: skip
PARTS = [
    "knowledgeBaseConfiguration", "externalSourcesConfiguration", "s3Location", "sources",
    "configuration", "knowledgeBase", "knowledgeBases", "sessionState", "deep",
]  # fmt: skip
LEAVES = st.lists(
    st.one_of(*(st.sampled_from(RIGHT) for _ in range(4)), st.sampled_from(WRONG)), max_size=2
).map(dict)
DEEP: st.SearchStrategy[Any] = st.one_of(
    LEAVES,
    st.dictionaries(st.sampled_from(PARTS), LEAVES, max_size=2),
    st.lists(st.dictionaries(st.sampled_from(PARTS), LEAVES, max_size=1), max_size=2),
    st.dictionaries(
        st.sampled_from(PARTS), st.dictionaries(st.sampled_from(PARTS), LEAVES, max_size=1)
    ),
)

# Targets, and the members that their bodies may have.
TARGETS = [
    (f"/knowledgebases/{OPEN}/retrieve", ["retrievalQuery", "guardrailConfiguration"]),
    ("/retrieveAndGenerate", ["retrieveAndGenerateConfiguration", "input"]),
    ("/retrieveAndGenerateStream", ["retrieveAndGenerateConfiguration", "input"]),
    ("/agenticRetrieveStream", ["retrievers", "memoryConfiguration"]),
    ("/generateQuery", ["transformationConfiguration"]),
    (f"/agents/{OPEN}/agentAliases/A/sessions/s1/text", ["sessionState", "inputText"]),
    ("/agents/s2", ["knowledgeBases", "collaborators", "actionGroups"]),
    (f"/flows/{OPEN}/aliases/A", ["inputs"]),
    (f"/flows/{OPEN}/aliases/A/executions", ["inputs"]),
    (f"/knowledgebases/{OPEN}/datasources/D/documents/d/content", ["userContext"]),
]
ELSEWHERE = [
    f"/knowledgebases/{SHUT}/retrieve", f"/knowledgebases/{OPEN}/../{SHUT}/retrieve",
    f"/knowledgebases/%4B{SHUT[1:]}/retrieve", f"/knowledgebases/{SHUT.lower()}/retrieve",
    f"/knowledgebases/{ARN}:knowledge-base%2F{SHUT}/retrieve", f"/flows/{SHUT}/aliases/A",
    f"/knowledgebases/{OPEN}/retrieve?nextToken={SHUT}", f"/agents/{OPEN}/agentAliases/{SHUT}/x",
    f"/knowledgebases/{OPEN};{SHUT}/retrieve", f"/knowledgebases/{OPEN}%00{SHUT}/retrieve",
    f"/agents/{SHUT}/agentAliases/A/sessions/s1/text",
    f"/knowledgebases/{OPEN}/datasources/D/documents/{SHUT}/content",
]  # fmt: skip


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Target and body; most of them are almost allowed."""
    target, members = draw(st.sampled_from(TARGETS))
    if draw(st.integers(0, 4)) == 0:
        target = draw(st.sampled_from(ELSEWHERE))
    if draw(st.integers(0, 9)) == 0:
        members = [
            *members,
            "surprise",
            "sessionId",
            "nextToken",
            "memoryId",
            "retrievalConfiguration",
        ]
    return target, draw(st.dictionaries(st.sampled_from(members), DEEP, max_size=2))


@pytest.fixture(scope="module")
def runner_and_front() -> Iterator[tuple[asyncio.Runner, SigningFront]]:
    may = policy(
        allowed_sources=("bedrock://kb/*",), denied_sources=(f"*{SHUT}*", f"*{SHUT.lower()}*")
    )

    def set_up(folder: Path) -> AbstractAsyncContextManager[SigningFront]:
        aws = Aws(region=REGION, credentials_file=credentials_file(folder))
        return signing_front(folder, aws, may, kind="bedrock")

    with kept_open(set_up) as (runner, front):
        front.upstream.script = answer(body=b"{}")
        yield runner, front


def names(seen: Seen) -> list[str]:
    """The names in a request, parsed as leniently as possible."""
    found = [unquote(seen.target)]
    pending = [json.loads(seen.body)]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            pending += node.values()
            for name, value in node.items():
                of_s3 = name == "s3ObjectKey" and "s3BucketName" in node
                of_s3 = of_s3 or (name == "uri" and str(value).startswith("s3:"))
                if of_s3 or name.lower() in REFERENCES:
                    found.append(str(value))
    return found


@given(requests(), st.booleans())
@examples(400)
def test_no_request_that_arrives_names_a_forbidden_source(
    runner_and_front: tuple[asyncio.Runner, SigningFront],
    request_of: tuple[str, dict[str, Any]],
    escaped: bool,
) -> None:
    target, body = request_of
    runner, front = runner_and_front
    front.upstream.begun.clear()
    text = json.dumps(body)
    if escaped:
        text = re.sub("KBSH", r"\\u004bBS\\u0048", text)
    lines = [
        f"POST {target} HTTP/1.1", "Host: kb", "Connection: close",
        "Content-Type: application/json", f"Content-Length: {len(text)}",
    ]  # fmt: skip
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    answered = runner.run(ask(front.port, head + text.encode()))
    event(str(answered.status))
    assert answered.status in (200, 400, 403)
    if answered.status != 200:
        assert front.upstream.begun == []
        return
    [seen] = front.upstream.begun
    assert fault(seen, "bedrock", {ACCESS: SECRET}) is None
    assert not [name for name in names(seen) if SHUT.lower() in name.lower()]
