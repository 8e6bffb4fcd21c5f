"""The recognizers, in order. Knows nothing of how each works.

To add a kind of personal data: a module with a `Recognizer`, a line here, a row in `README.md`, and
cases in `tests/policies/ground/masking`.
"""

from policies.ground.masking.addresses import IP
from policies.ground.masking.cards import CARD
from policies.ground.masking.credentials import SECRET
from policies.ground.masking.emails import EMAIL
from policies.ground.masking.ibans import IBAN
from policies.ground.masking.national_ids import NATIONAL_ID
from policies.ground.masking.phones import PHONE
from policies.ground.masking.recognizer import Recognizer

# INVARIANT: the more certain recognizer comes first. If two match the same characters, its label is
# used.
RECOGNIZERS: tuple[Recognizer, ...] = (SECRET, EMAIL, IBAN, CARD, NATIONAL_ID, IP, PHONE)
