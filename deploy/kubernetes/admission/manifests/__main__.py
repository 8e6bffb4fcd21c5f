"""`python -m deploy.kubernetes.admission.manifests`: runs `sluice inject` on this process's
streams. Needs no library of the webhook's."""

import sys

from deploy.kubernetes.admission.manifests.command import parser, run
from policies.ground.output import for_a_reader

if __name__ == "__main__":
    options = parser().parse_args()
    sys.exit(for_a_reader(lambda: run(options, (sys.stdin, sys.stdout, sys.stderr)), gone=1))
