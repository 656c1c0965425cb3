"""What is kept from its receiver, and what is said in its place: the policy's answers, and strictness.

What must not be broken here: a guard judges and changes nothing. What it withholds is numbered and stored like any
line, and what it says instead is a line of our own, behind the one it is about. Everything it has no ruling on passes
byte for byte. A connection where everything passes has no guard at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from acp_ledger import policy
from acp_ledger.daemon import strictness
from acp_ledger.daemon.own import INVALID_REQUEST, NO_ID, Own, error_line
from acp_ledger.protocol.envelope import id_key
from acp_ledger.protocol.permission import METHOD, answer_line, decision_of
from acp_ledger.protocol.records import TO_AGENT, TO_CLIENT
from acp_ledger.protocol.requests import WITHDRAWAL, Asking

if TYPE_CHECKING:
    from acp_ledger.policy import Policy
    from acp_ledger.protocol.envelope import Envelope
    from acp_ledger.protocol.observer import Observer
    from acp_ledger.protocol.records import Direction
    from acp_ledger.protocol.standing import Standing

Ruling: TypeAlias = tuple[Own, ...]
"""The line is withheld, and these are said in its place."""

# A question and an answer have the key `id`, plain or with an escape in it; a withdrawal has its method.
_ID: Final = b'"id"'
_ESCAPED: Final = b"\\u006"
_WITHDRAWN: Final = b"cancel_request"


class Guard:
    """The guard of one connection."""

    def __init__(self, rules: Policy, observer: Observer, *, strict: bool) -> None:
        self._policy = rules
        self._observer = observer
        self._strict = strict
        self._called_off: dict[str, tuple[str, tuple[int, ...]]] = {}

    def call_off(self, session: Standing, operator: str) -> None:
        """An operator has cancelled what runs in this session: until these turns are over nothing more is granted."""
        self._called_off[session.acp_session_id] = operator, session.turns

    def concerns(self, body: bytes) -> bool:
        """Whether a line may be one to judge. The others, nearly every update with them, are not looked at."""
        return self._strict or _ID in body or _WITHDRAWN in body or _ESCAPED in body

    def judge(self, direction: Direction, envelope: Envelope, *, ending: bool) -> Ruling | None:
        """The ruling on a line; None lets it pass. On a connection that is `ending` no question is answered."""
        ruling = strictness.withheld(direction, envelope, self._observer) if self._strict else None
        if ruling is not None:
            return ruling
        if direction == TO_AGENT:
            return () if self._is_late(envelope) else self._unoffered(envelope)
        if envelope.method == WITHDRAWAL:
            return self._withdrawn(envelope)
        if envelope.kind == "request" and envelope.method == METHOD and not ending:
            return self._asked(envelope)
        return None

    def _asked(self, envelope: Envelope) -> Ruling | None:
        """A question, answered here where the policy has an answer."""
        key, token = envelope.id_key, envelope.id_token
        if key is None or token is None:
            return None  # too big to be read, and its id was not found
        if self._observer.waiting(TO_CLIENT, key) is not None:
            return self._asked_under_a_taken_id()
        if (operator := self._caller_off(envelope)) is not None:
            return (Own(TO_AGENT, answer_line(token, None), "operator", operator=operator),)
        verdict = policy.decide(self._policy, policy.asked_of(envelope.params), grantable=self._is_grantable(envelope))
        if verdict is None:
            return None
        return (Own(TO_AGENT, answer_line(token, verdict.option_id), "policy", verdict.rule),)

    def _asked_under_a_taken_id(self) -> Ruling | None:
        """An answer of ours would be taken for the one to the request that waits under the same id."""
        if self._policy.mode != "unattended":
            return None
        sentence = "a question under an id that is in use was not passed on (policy.mode)"
        return (Own(TO_AGENT, error_line(NO_ID, sentence, strictness.REASON, INVALID_REQUEST)),)

    def _is_grantable(self, envelope: Envelope) -> bool:
        """Whether a question reads alike for everybody, and the user has not stopped the turn it belongs to."""
        if not envelope.parsed or any(class_ in ("ambiguous", "duplicate_key") for class_, _ in envelope.anomalies):
            return False
        session = envelope.params.get("sessionId") if isinstance(envelope.params, dict) else None
        return not (isinstance(session, str) and self._observer.is_cancelled(session))

    def _caller_off(self, envelope: Envelope) -> str | None:
        """The operator who cancelled what runs in a question's session, as long as one of those turns is open."""
        session = envelope.params.get("sessionId") if isinstance(envelope.params, dict) else None
        if not isinstance(session, str) or session not in self._called_off:
            return None
        operator, turns = self._called_off[session]
        return operator if any(map(self._observer.is_open, turns)) else None

    def _is_late(self, envelope: Envelope) -> bool:
        """Whether this answers a question that was answered here, and the agent would hear a second answer."""
        key = envelope.answers
        return key is not None and self._observer.is_settled_here(TO_CLIENT, key)

    def _withdrawn(self, envelope: Envelope) -> Ruling | None:
        """The editor never saw a question that was answered here, so it is not told of its withdrawal either."""
        params = envelope.params if isinstance(envelope.params, dict) else {}
        if "requestId" in params and self._observer.is_settled_here(TO_CLIENT, id_key(params["requestId"])):
            return ()
        return None

    def _unoffered(self, envelope: Envelope) -> Ruling | None:
        """An answer that chose what its question never offered; the agent is told `cancelled` in its place."""
        key = envelope.answers
        request = None if key is None else self._observer.waiting(TO_CLIENT, key)
        if self._policy.unoffered_option != "cancel" or request is None or request.shared is not None:
            return None
        if not isinstance(request.subject, Asking):
            return None
        ambiguous = envelope.ambiguous_answer
        answer = decision_of(request.subject.question, envelope.result, envelope.error, ambiguous=ambiguous)
        if answer.offered is not False:
            return None
        return (Own(TO_AGENT, answer_line(request.id_token, None), "policy", policy.UNOFFERED_OPTION),)


def guard_of(rules: Policy, observer: Observer, *, strict: bool) -> Guard | None:
    """The guard of a connection; None where everything passes, whatever it is, until an operator steps in."""
    if rules.mode == "observe" and rules.unoffered_option == "forward" and not strict:
        return None
    return Guard(rules, observer, strict=strict)
