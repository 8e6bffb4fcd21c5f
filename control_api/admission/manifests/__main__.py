"""`python -m control_api.admission.manifests`: runs `sluice inject` on this process's streams.
Needs no library of the webhook's."""

import sys

from control_api.admission.manifests.command import parser, run

if __name__ == "__main__":
    try:
        sys.exit(run(parser().parse_args(), (sys.stdin, sys.stdout, sys.stderr)))
    except BrokenPipeError:
        # What reads the output, such as `head`, has seen enough; the interpreter must not complain.
        sys.stderr.close()
        sys.exit(1)
