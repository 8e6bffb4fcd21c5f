"""Reads the key `aws` of a source: the AWS credentials that sign its requests."""

from importlib.util import find_spec
from pathlib import Path

from sidecar.config.sections import Section
from sidecar.settings.model import AWS_KINDS, Aws


def aws_of(section: Section, kind: str, base: Path) -> Aws:
    """`aws` of a source of this kind. botocore finds what it leaves out."""
    aws = section.section("aws")
    named = aws.text("credentials_file") is not None
    found = Aws(
        region=aws.identifier("region"),
        profile=aws.identifier("profile"),
        credentials_file=aws.path("credentials_file", base, "") if named else None,
    )
    if found.credentials_file is not None and not found.credentials_file.is_file():
        aws.complain("credentials_file", f"`{found.credentials_file}` is not a file")
    if aws.given and kind not in AWS_KINDS:
        section.complain("aws", f"applies only to sources of the kinds {', '.join(AWS_KINDS)}")
    # An extra of the package (pyproject.toml): few sidecars need it.
    if kind in AWS_KINDS and find_spec("botocore") is None:
        section.complain("kind", f"`{kind}` needs botocore; run `pip install 'sluice[aws]'`")
    aws.close()
    return found
