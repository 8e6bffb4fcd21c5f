"""Every golden pod through the running webhook: its answer is the command's."""

from __future__ import annotations

from pathlib import Path

import jsonpatch

from deploy.kubernetes.admission.injection import review as decide
from deploy.kubernetes.admission.review import Review
from deploy.kubernetes.admission.server import NamespaceFacts
from deploy.kubernetes.admission.vocabulary import LABEL, POD_SECURITY, Namespace, Verdict
from tests.deploy.kubernetes.admission import reviews
from tests.deploy.kubernetes.admission.goldens import cases
from tests.deploy.kubernetes.admission.running_webhook import patch_of, running_webhook
from tests.deploy.kubernetes.admission.test_goldens import pods


async def test_the_webhook_answers_as_the_command_writes(tmp_path: Path) -> None:
    async with running_webhook(tmp_path) as webhook:
        for case in cases():
            if case.name.startswith("manifests-"):
                continue  # several namespaces in one file
            chosen = case.fragment

            def judge(review: Review, facts: NamespaceFacts) -> Verdict:
                assert review.pod is not None
                labels = {LABEL: "optional" if facts.optional else "enabled"}
                labels |= {POD_SECURITY: "restricted"} if facts.restricted else {}
                return decide(review.pod, Namespace(review.namespace, labels), chosen)  # noqa: B023

            webhook.injector.decide = judge
            path = f"/inject/{case.namespace.governance.value}"
            path += "/restricted" if case.namespace.pod_security == "restricted" else ""
            kind, expected = case.expected()
            for place, pod in enumerate(pods(case.input)):
                body = reviews.encoded(reviews.review(object=pod, namespace="default"))
                status, answer = await webhook.ask(body, path)
                assert status == 200, (case.name, answer)
                response = answer["response"]
                assert response["allowed"] == (kind != "refused.txt"), case.name
                if kind == "output.yaml" and "patch" in response:
                    patched = jsonpatch.apply_patch(pod, patch_of(answer))
                    assert patched == pods(expected)[place], case.name
                elif kind == "output.yaml":
                    assert pod == pods(expected)[place], case.name
                elif kind == "refused.txt":
                    message = response["status"]["message"]
                    for line in expected.splitlines()[1:]:
                        assert line.strip() in message, case.name
