"""Whose AWS credentials a source's requests are signed with, as a settings file has it. Knows the
mapping `aws` of a source and no other key."""

from importlib.util import find_spec
from pathlib import Path

from sidecar.config.sections import Section
from sidecar.settings.model import AWS_KINDS, Aws


def aws_of(section: Section, kind: str, base: Path) -> Aws:
    """`aws` of a source of this kind; what it leaves out is botocore's to find."""
    aws = section.section("aws")
    named = aws.text("credentials_file") is not None
    found = Aws(
        region=aws.identifier("region"),
        profile=aws.identifier("profile"),
        credentials_file=aws.path("credentials_file", base, "") if named else None,
    )
    if found.credentials_file is not None and not found.credentials_file.is_file():
        aws.complain("credentials_file", f"`{found.credentials_file}` is no file")
    if aws.given and kind not in AWS_KINDS:
        section.complain("aws", f"is for sources of the kinds {', '.join(AWS_KINDS)}")
    if kind in AWS_KINDS and find_spec("botocore") is None:
        section.complain("kind", f"`{kind}` needs botocore: pip install 'sluice[aws]'")
    aws.close()
    return found
