"""Sources that let more through than is meant: names for addresses inside, or for everybody's
things at one provider; denials that are only reported."""

from collections.abc import Iterator
from ipaddress import ip_address, ip_network

from policies.ground.egress import refusal
from sidecar.doctor.context import DoctorContext
from sidecar.doctor.finding import DoctorFinding, Severity
from sidecar.doctor.host import Unseen

MANY = 256
"""Addresses in one entry of `addresses`: more are hardly those of one data source."""

BROAD = (
    "amazonaws.com",
    "appspot.com",
    "azureedge.net",
    "azurefd.net",
    "bitbucket.org",
    "cloudfront.net",
    "digitaloceanspaces.com",
    "fastly.net",
    "github.com",
    "githubusercontent.com",
    "gitlab.com",
    "googleapis.com",
    "huggingface.co",
    "netlify.app",
    "pages.dev",
    "r2.cloudflarestorage.com",
    "run.app",
    "vercel.app",
    "windows.net",
    "workers.dev",
)
"""Hosts, with all below them, where anybody can keep things: a way to any account of theirs."""


def report_mode(scene: DoctorContext) -> Iterator[DoctorFinding]:
    """Sources that deny nothing."""
    for source in scene.settings.sources:
        if source.mode == "report":
            yield DoctorFinding(
                Severity.HIGH,
                f"source `{source.alias}` is in mode `report`",
                "what policies deny is recorded, and goes on",
                "set `mode: enforce` once the log shows no denial that ought to have been none",
            )


def private_names(scene: DoctorContext) -> Iterator[DoctorFinding]:
    """Names that stand for addresses which are not public, and how far `addresses` lets them go."""
    for source, host, _, addresses in scene.upstreams:
        if isinstance(addresses, Unseen) or host == "localhost" or _is_address(host):
            continue
        name = f"source `{source.alias}`: `{host}`"
        for network in map(ip_network, source.addresses):
            if network.num_addresses > MANY:
                yield DoctorFinding(
                    Severity.MEDIUM,
                    f"{name} may lead to anything in {network}",
                    "who answers for the name leads the sidecar to whatever it reaches inside",
                    "narrow `addresses` to those that the data source has",
                )
        covered = [ip_network(each) for each in source.addresses]
        inside = [each for each in addresses if not any(each in network for network in covered)]
        refused = [str(each) for each in inside if refusal(each) is not None]
        if refused:
            yield DoctorFinding(
                Severity.LOW,
                f"{name} stands for {', '.join(refused)}, where no name may lead by itself",
                "the sidecar refuses it, and requests end with 502; nobody passes it by",
                "if it is meant, name the address in the source's `addresses`",
            )


def broad_hosts(scene: DoctorContext) -> Iterator[DoctorFinding]:
    """Where connections are decided by name alone, names that belong to many."""
    if not scene.by_name:
        return
    for source, host, _, _ in scene.upstreams:
        if source.terminate is not None or not source.upstream.startswith("https://"):
            continue  # each request in it is judged
        for name in dict.fromkeys((host, *source.hosts)):
            if _is_broad(name):
                yield DoctorFinding(
                    Severity.MEDIUM,
                    f"source `{source.alias}` lets through connections to `{name}`",
                    "inside TLS one name fronts for another: any account there is within reach",
                    "name one host, or give the source `terminate`: then each request is judged",
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
