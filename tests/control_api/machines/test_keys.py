"""Keys: made, bound, rotated, revoked, expired; what each opens at every moment."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from policies.ground.canonical import micros
from tests.control_api.machines.conftest import Run
from tests.support.control_api import ControlApi, asked

DAY = 86_400
RUNS = itertools.count()
SLOTS = st.integers(0, 4)
EVALUATE = "/v1/context/evaluate"


@dataclass
class Known:
    key_id: str
    secret: str
    dies: float
    bound: str | None = None
    roles: tuple[str, ...] = ()
    revoked: bool = False


class Keys(RuleBasedStateMachine):
    api: ClassVar[ControlApi]

    def __init__(self) -> None:
        super().__init__()
        self.name = f"keys-{next(RUNS)}"
        self.keys: list[Known] = []

    def live(self, key: Known) -> bool:
        return not key.revoked and self.api.time.ahead < key.dies

    @rule(days=st.sampled_from([1, 2, 3650, None, "left out"]))
    def create(self, days: int | str | None) -> None:
        body = {"name": self.name, "scope": "evaluate"}
        given = {} if days == "left out" else {"expires_days": days}
        made = self.api.admin("POST", "/v1/keys", body | given)
        dies = float("inf")
        if days is None:
            assert made["expires_at"] is None
        else:
            lasts = (365 if isinstance(days, str) else days) * DAY
            assert micros(made["expires_at"]) - micros(made["created_at"]) == lasts * 1_000_000
            dies = self.api.time.ahead + lasts
        self.keys.append(Known(made["key_id"], made["key"], dies))

    @rule(slot=SLOTS, bound=st.sampled_from([None, "someone"]))
    def bind(self, slot: int, bound: str | None) -> None:
        if slot < len(self.keys):
            key = self.keys[slot]
            path = f"/v1/keys/{key.key_id}/binding"
            answer = self.api.call("PATCH", path, {"bound_agent_id": bound})
            assert answer.status == (404 if key.revoked else 200)
            key.bound = key.bound if key.revoked else bound

    @rule(slot=SLOTS, roles=st.sampled_from([(), ("support",), ("other",)]))
    def restrict(self, slot: int, roles: tuple[str, ...]) -> None:
        if slot < len(self.keys):
            key = self.keys[slot]
            path = f"/v1/keys/{key.key_id}/binding"
            answer = self.api.call("PATCH", path, {"permitted_roles": list(roles)})
            assert answer.status == (404 if key.revoked else 200)
            key.roles = key.roles if key.revoked else roles

    @rule(slot=SLOTS)
    def rotate(self, slot: int) -> None:
        if slot < len(self.keys):
            key = self.keys[slot]
            answer = self.api.call("POST", f"/v1/keys/{key.key_id}/rotate")
            assert answer.status == (201 if self.live(key) else 409)
            if answer.status == 201:
                made = answer.body
                self.keys.append(Known(made["key_id"], made["key"], key.dies, key.bound, key.roles))
                key.revoked = True

    @rule(slot=SLOTS)
    def revoke(self, slot: int) -> None:
        if slot < len(self.keys):
            key = self.keys[slot]
            answer = self.api.call("DELETE", f"/v1/keys/{key.key_id}")
            assert answer.status == (404 if key.revoked else 200)
            key.revoked = True

    @rule()
    def a_day_goes_by(self) -> None:
        self.api.time.ahead += DAY + 1

    @rule(slot=SLOTS)
    def call(self, slot: int) -> None:
        if slot < len(self.keys):
            key = self.keys[slot]
            answer = self.api.call("POST", EVALUATE, asked(), key=key.secret)
            assert answer.status == (200 if self.live(key) else 403)
            if answer.status == 200:
                expected = "support-reads"
                if key.bound is not None:
                    expected = "key_agent_binding"
                if key.roles == ("other",):
                    expected = "key_role_restriction"
                assert answer.body["policy_name"] == expected

    @invariant()
    def the_list_is_the_model(self) -> None:
        found = self.api.admin("GET", "/v1/keys?limit=1000")
        listed = {
            each["key_id"]: (each["bound_agent_id"], tuple(each["permitted_roles"]))
            for each in found
            if each["name"] == self.name
        }
        kept = {key.key_id: (key.bound, key.roles) for key in self.keys if not key.revoked}
        assert listed == kept


def test_any_sequence_of_calls_changes_keys_as_the_model_predicts(run: Run) -> None:
    run(Keys)
