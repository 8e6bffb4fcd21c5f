"""Checks for settings that allow more than intended: names that resolve to private addresses or
belong to many customers, denials that are only reported, and AuthZEN actions that let roles write
where they may only read."""

from collections.abc import Iterator
from ipaddress import ip_address, ip_network

from policies.ground.doctor_finding import DoctorFinding, Severity
from policies.ground.public_addresses import refusal
from sidecar.doctor.examination import DoctorContext
from sidecar.doctor.host import Unobservable

MAX_ADDRESSES = 256
"""The most addresses of a plausible network in `addresses`: a larger one is unlikely to be one data
source."""

BROAD = (
    "amazonaws.com", "appspot.com", "azureedge.net", "azurefd.net", "bitbucket.org",
    "cloudfront.net", "digitaloceanspaces.com", "fastly.net", "github.com",
    "githubusercontent.com", "gitlab.com", "googleapis.com", "huggingface.co", "netlify.app",
    "pages.dev", "r2.cloudflarestorage.com", "run.app", "vercel.app", "windows.net", "workers.dev",
)  # fmt: skip
"""Domains where anyone can store data: access to one name gives access to every account there."""

_WRITING = ("write", "delete", "update", "create", "put", "post", "patch")


def report_mode(context: DoctorContext) -> Iterator[DoctorFinding]:
    for source in context.settings.sources:
        if source.mode == "report":
            yield DoctorFinding(
                Severity.HIGH,
                f"source `{source.alias}` is in mode `report`",
                "requests that policies deny are recorded, but forwarded",
                "set `mode: enforce` once the audit trail shows only denials that you intend",
            )


def private_names(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report names that resolve to addresses that are not public, and networks in `addresses` that
    permit very many."""
    for source, _, host, _, addresses in context.upstreams:
        # An address or `localhost` in the settings is what the operator meant. Only a name can come
        # to point elsewhere (DNS rebinding).
        if isinstance(addresses, Unobservable) or host == "localhost" or _is_address(host):
            continue
        name = f"source `{source.alias}`: `{host}`"
        covered = [ip_network(each) for each in source.addresses]
        for network in covered:
            if network.num_addresses > MAX_ADDRESSES:
                yield DoctorFinding(
                    Severity.MEDIUM,
                    f"{name} may resolve to any address in {network}",
                    "the operator of that DNS name can direct the sidecar to any of them",
                    "narrow `addresses` to those of the data source",
                )
        private = [each for each in addresses if refusal(each) is not None]
        refused = [str(each) for each in private if not any(each in network for network in covered)]
        if refused:
            yield DoctorFinding(
                Severity.LOW,
                f"{name} resolves to {', '.join(refused)}, which is not a public address",
                "the sidecar refuses to connect, and requests fail with 502; this is no bypass",
                "if it is intended, add the address to the source's `addresses`",
            )


def broad_hosts(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report names that many customers share, if connections are decided by name alone."""
    if not context.decides_by_name:
        return
    for source, url, host, _, _ in context.upstreams:
        if source.terminate is not None or not url.startswith("https://"):
            continue  # the sidecar reads and judges each request
        # Without `terminate`, TLS is passed on unread: the name in the ClientHello is all that is
        # judged, and the `Host` inside may be another customer's (domain fronting).
        hosts = source.hosts if url == source.upstream else ()  # each once
        for name in dict.fromkeys((host, *hosts)):
            if _is_broad(name):
                yield DoctorFinding(
                    Severity.MEDIUM,
                    f"source `{source.alias}` allows connections to `{name}`",
                    "inside TLS the agent can request another name: any account there is reachable",
                    "name a single host, or set `terminate`, so that each request is judged",
                )


def _is_broad(name: str) -> bool:
    bare = name.removeprefix("*.").partition(":")[0].lower().rstrip(".")
    return any(bare == each or bare.endswith(f".{each}") for each in BROAD)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def write_actions(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report AuthZEN actions that count as reading but whose name sounds like writing."""
    for action in context.settings.authzen.actions:
        # A task leaves it to the policies, by `allowed_tasks` and `denied_tasks`.
        if action.task is None and action.name.lower().startswith(_WRITING):
            yield DoctorFinding(
                Severity.MEDIUM,
                f"`authzen.actions` has `{action.name}` without a task",
                "each role may do it to what the role may read",
                "give it a `task`, and name that task in the policies; or remove it",
            )
