"""Every operation of Bedrock, as botocore knows it, has a row, and the closed ones are closed."""

import re
from pathlib import Path

import botocore.session

from sidecar.http.request_target import canonical
from sidecar.protocols.bedrock.routes import ROUTES, Bedrock
from sidecar.protocols.protocol import ALWAYS_DENIED, RouteClass
from tests.sidecar.protocols.bedrock.front import denied, fronting
from tests.support.proxy import CLOCK, source

FILLED = re.compile(r"\{.*?\}")


def test_every_operation_of_bedrock_has_a_route() -> None:
    model = botocore.session.get_session().get_service_model("bedrock-agent-runtime")
    protocol = Bedrock(source(1, "bedrock"), CLOCK.monotonic)
    classes: dict[str, RouteClass] = {}
    for name in model.operation_names:
        http = model.operation_model(name).http
        found = protocol.match(http["method"], canonical(FILLED.sub("x", http["requestUri"])))
        assert found is not None, name
        classes[name] = found.route.route_class
    closed = {name for name, class_ in classes.items() if class_ in ALWAYS_DENIED}
    assert closed == {
        "CheckIngestedDocumentAcl", "GetIngestedDocumentAcl", "CreateSession", "GetSession",
        "UpdateSession", "EndSession", "DeleteSession", "ListSessions", "CreateInvocation",
        "ListInvocations", "PutInvocationStep", "GetInvocationStep", "ListInvocationSteps",
        "TagResource", "UntagResource", "ListTagsForResource",
    }  # fmt: skip
    assert {name for name, class_ in classes.items() if class_ is RouteClass.WRITE} == {
        "DeleteAgentMemory", "StopFlowExecution",
    }  # fmt: skip


def test_the_members_of_each_body_are_the_models() -> None:
    """The table covers all of botocore's members; new ones have to be reviewed first."""
    model = botocore.session.get_session().get_service_model("bedrock-agent-runtime")
    source_text = Path(__file__).parents[4] / "sidecar/protocols/bedrock/routes.py"
    known = set(source_text.read_text().replace('"', " ").split())
    protocol = Bedrock(source(1, "bedrock"), CLOCK.monotonic)
    for name in model.operation_names:
        operation = model.operation_model(name)
        http = operation.http
        found = protocol.match(http["method"], canonical(FILLED.sub("x", http["requestUri"])))
        assert found is not None
        if found.route.route_class in ALWAYS_DENIED or operation.input_shape is None:
            continue
        for member, shape in operation.input_shape.members.items():
            place = shape.serialization.get("location")
            if place not in ("uri", "header"):
                assert shape.serialization.get("name", member) in known, (name, member)


async def test_a_closed_route_is_closed(tmp_path: Path) -> None:
    async with fronting(tmp_path, writes="allow") as front:
        for route in ROUTES:
            if route.route_class not in ALWAYS_DENIED:
                continue
            path = route.pattern.replace("{", "").replace("}", "")
            for method in route.methods.split():
                denied(await front.bare(method, path), "route_denied")
        assert front.upstream.seen == []
