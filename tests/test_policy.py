"""Who may answer a permission question, and with what."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from acp_ledger.policy import Policy, Rule, Verdict, asked_of, decide

if TYPE_CHECKING:
    from acp_ledger.policy import Answer, Mode

ONCE, ALWAYS, NO, NEVER = "allow_once", "allow_always", "reject_once", "reject_always"


def offers(*kinds: str) -> list[dict[str, Any]]:
    """Options whose ids are their kind and their place."""
    return [{"optionId": f"{kind}-{place}", "name": "n", "kind": kind} for place, kind in enumerate(kinds)]


def question(kind: Any = "read", title: Any = "cat notes", options: Any = None) -> dict[str, Any]:
    """The params of a question."""
    given = offers(ALWAYS, ONCE, NO, NEVER) if options is None else options
    return {"sessionId": "s", "toolCall": {"toolCallId": "c", "kind": kind, "title": title}, "options": given}


READS = Policy("enforce", allow_tool_kinds=("read",))
CATS = Policy("enforce", allow_title_prefixes=("cat ",))
READS_AS_JSON = (
    b'{"allow_title_prefixes":[],"allow_tool_kinds":["read"],"ask":"nobody","ask_seconds":300.0,"mode":"enforce",'
    b'"never_always":false,'
    b'"rules":[],"unoffered_option":"forward"}'
)
BY_KIND = "allow_tool_kinds=read"
BY_TITLE = "allow_title_prefixes=cat "


def ruled(answer: Answer, names: dict[str, str] | None = None, *, mode: Mode = "enforce") -> Policy:
    """A policy of one rule, which comes before the lists that would grant everything."""
    rule = Rule("mine", answer, **names or {"tool_kind": "read"})
    return Policy(mode, allow_tool_kinds=("read",), allow_title_prefixes=("c",), rules=(rule,))


class TestWhatMatches:
    """Kinds are compared whole, titles by their beginning, both as the question itself says them."""

    @pytest.mark.parametrize(
        ("policy", "params", "rule"),
        [
            (READS, question(), BY_KIND),
            (READS, question(kind="Read"), None),
            (READS, question(kind="read "), None),
            (READS, question(kind="reader"), None),
            (READS, question(kind=None), None),
            (READS, question(kind=7), None),
            (READS, {"toolCall": "read", "options": offers(ONCE)}, None),
            (READS, {"options": offers(ONCE)}, None),
            (READS, {"subject": {"toolCallId": "c", "kind": "read"}, "options": offers(ONCE)}, BY_KIND),
            (
                Policy("enforce", allow_tool_kinds=("x" * 300,)),
                question(kind="x" * 300),
                "allow_tool_kinds=" + "x" * 300,
            ),
            (Policy("enforce", allow_tool_kinds=("sha256:1",)), question(kind="sha256:1"), "allow_tool_kinds=sha256:1"),
            (CATS, question(), BY_TITLE),
            (CATS, question(title="cat"), None),
            (CATS, question(title=" cat notes"), None),
            (CATS, question(title="Cat notes"), None),
            (CATS, question(title=None), None),
            (CATS, question(title=["cat notes"]), None),
            (CATS, {"title": "cat notes", "options": offers(ONCE)}, BY_TITLE),
            (CATS, question(title="cat notes; rm -rf /"), BY_TITLE),
            (replace(CATS, allow_tool_kinds=("read",)), question(), BY_KIND),
            (Policy("observe", allow_tool_kinds=("read",)), question(), None),
            (Policy("enforce"), question(), None),
        ],
    )
    def test_lists(self, policy: Policy, params: Any, rule: str | None) -> None:
        """A match names the entry of the list, kinds before titles; what matches nothing is nobody's."""
        verdict = decide(policy, asked_of(params))
        assert (None if verdict is None else verdict.rule) == rule

    @pytest.mark.parametrize(
        ("names", "matches"),
        [
            ({"tool_kind": "read"}, True),
            ({"title_prefix": "cat"}, True),
            ({"tool_kind": "read", "title_prefix": "cat"}, True),
            ({"tool_kind": "edit", "title_prefix": "cat"}, False),
            ({"tool_kind": "read", "title_prefix": "dog"}, False),
        ],
    )
    def test_rule_matches_where_all_it_names_does(self, names: dict[str, str], *, matches: bool) -> None:
        """A rule that names both is met by both alone; where it is not, the lists are asked."""
        verdict = decide(ruled("reject_once", names), asked_of(question()))
        assert verdict == (Verdict("reject_once-2", "mine") if matches else Verdict("allow_once-1", BY_KIND))

    def test_first_rule_counts(self) -> None:
        """Rules are read in the order in which they are written."""
        rules = (Rule("first", "reject_once", title_prefix="cat"), Rule("second", "allow_once", tool_kind="read"))
        for each in (rules, rules[::-1]):
            verdict = decide(Policy("enforce", rules=each), asked_of(question()))
            assert verdict is not None
            assert verdict.rule == each[0].name


class TestWhatIsChosen:
    """An answer is always one of the agent's own offers, by its kind and never by its name."""

    @pytest.mark.parametrize(
        ("kinds", "once_only", "chosen"),
        [
            ((NO, ALWAYS, ONCE, ONCE), False, "allow_once-2"),
            ((NO, ALWAYS, ALWAYS), False, "allow_always-1"),
            ((NO, ALWAYS), True, None),
            ((NO, ALWAYS, ONCE), True, "allow_once-2"),
            ((NO, NEVER), False, None),
            (("allow", "allow_forever", "ALLOW_ONCE"), False, None),
            ((), False, None),
        ],
    )
    def test_grant(self, kinds: tuple[str, ...], chosen: str | None, *, once_only: bool) -> None:
        """The first `allow_once`, else the first `allow_always` unless never; else the editor is asked."""
        verdict = decide(replace(READS, never_always=once_only), asked_of(question(options=offers(*kinds))))
        assert verdict == (None if chosen is None else Verdict(chosen, BY_KIND))

    @pytest.mark.parametrize(
        ("kinds", "chosen"),
        [
            ((ONCE, NEVER, NO, NO), "reject_once-2"),
            ((ONCE, NEVER, NEVER), "reject_always-2"),
            ((ONCE, ALWAYS), None),
            ((), None),
        ],
    )
    def test_refusal(self, kinds: tuple[str, ...], chosen: str | None) -> None:
        """With nobody there: the first `reject_once`, else the last `reject_always`, else `cancelled`."""
        verdict = decide(Policy("unattended"), asked_of(question(options=offers(*kinds))))
        assert verdict == Verdict(chosen, "mode=unattended")

    @pytest.mark.parametrize(
        ("answer", "kinds", "enforced", "unattended"),
        [
            ("allow_once", (ONCE, NO), "allow_once-0", "allow_once-0"),
            ("allow_always", (ONCE, ALWAYS, NO), "allow_always-1", "allow_always-1"),
            ("reject_once", (ONCE, NO), "reject_once-1", "reject_once-1"),
            ("reject_always", (NO, NEVER, NEVER), "reject_always-1", "reject_always-1"),
            ("reject_once", (ONCE, NEVER), None, "reject_always-1"),
            ("allow_once", (ALWAYS, NO), None, "reject_once-1"),
            ("ask", (ONCE, NO), None, "reject_once-1"),
            ("ask", (ONCE,), None, "cancelled"),
        ],
    )
    def test_rule(self, answer: Answer, kinds: tuple[str, ...], enforced: str | None, unattended: str) -> None:
        """A rule answers with its own kind or not at all; no later list grants what it did not."""
        asked = asked_of(question(options=offers(*kinds)))
        verdict = decide(ruled(answer), asked)
        assert verdict == (None if enforced is None else Verdict(enforced, "mine"))
        alone = decide(ruled(answer, mode="unattended"), asked)
        assert alone is not None
        assert (alone.option_id or "cancelled") == unattended
        assert alone.rule == ("mine" if enforced else "mode=unattended")

    def test_never_always_binds_rules_too(self) -> None:
        """A rule cannot choose what its policy says is never chosen."""
        asked = asked_of(question(options=offers(ALWAYS)))
        assert decide(replace(ruled("allow_always"), never_always=True), asked) is None

    @pytest.mark.parametrize(
        ("options", "chosen"),
        [
            (["no object", {"optionId": 7, "kind": ONCE}, *offers(ONCE)], "allow_once-0"),
            ([{"optionId": "a"}, {"kind": ONCE}, {"optionId": "b", "kind": ["allow_once"]}], None),
            ([{"optionId": "a", "kind": ONCE}, {"optionId": "a", "kind": NO}], None),
            ([{"optionId": "a", "kind": ONCE}, {"optionId": "a"}], None),
            ([{"optionId": "a", "kind": ONCE}, {"optionId": "a", "kind": ONCE}], "a"),
            ([{"optionId": "", "kind": ONCE}], ""),
            ([{"optionId": "x" * 300, "kind": ONCE}], "x" * 300),
            ([{"optionId": "sha256:1", "kind": ONCE}], "sha256:1"),
            ([{"optionId": "\ud800\0", "kind": ONCE}], "\ud800\0"),
            ([{"optionId": "a", "kind": "reject_once", "name": "Allow"}], None),
        ],
    )
    def test_odd_options(self, options: list[Any], chosen: str | None) -> None:
        """What cannot be chosen clearly is skipped, and an id is given back exactly as it was offered."""
        verdict = decide(READS, asked_of(question(options=options)))
        assert verdict == (None if chosen is None else Verdict(chosen, BY_KIND))


class TestWhatIsNeverGranted:
    """No list grants a question without a list of options, or one that nobody may grant."""

    @pytest.mark.parametrize("options", [None, {}, "allow_once", 7])
    def test_no_list_of_options(self, options: Any) -> None:
        """The lists are not consulted: an editor that is there is asked, and nobody else hears `cancelled`."""
        params = question() | {"options": options}
        for asked in (asked_of(params), asked_of({key: params[key] for key in ("toolCall",)})):
            assert asked.offers is None
            assert decide(READS, asked) is None
            assert decide(replace(READS, mode="unattended"), asked) == Verdict(None, "mode=unattended")

    @pytest.mark.parametrize("params", [None, [], "x", 7])
    def test_params_that_are_no_object(self, params: Any) -> None:
        """Nothing is read from what is no object."""
        assert decide(READS, asked_of(params)) is None

    def test_not_grantable(self) -> None:
        """Whatever the rules say: the editor is asked, and with nobody there the answer is `cancelled`."""
        asked = asked_of(question())
        assert decide(READS, asked, grantable=False) is None
        assert decide(replace(READS, mode="unattended"), asked, grantable=False) == Verdict(None, "mode=unattended")


class TestDigest:
    """The digest names one policy and no other."""

    def test_it_is_the_documented_one(self) -> None:
        """Anybody can recompute it from the settings."""
        assert READS.digest == hashlib.sha256(b"acp-ledger/policy/1\0" + READS_AS_JSON).hexdigest()

    def test_every_key_changes_it(self) -> None:
        """No two policies that differ in any key share it, nor do the same rules in another order."""
        rules = (Rule("a", "ask", tool_kind="x"), Rule("b", "ask", title_prefix="x"))
        policies = [
            Policy(),
            Policy("enforce"),
            Policy(allow_tool_kinds=("x",)),
            Policy(allow_title_prefixes=("x",)),
            Policy(rules=rules),
            Policy(rules=rules[::-1]),
            Policy(never_always=True),
            Policy(unoffered_option="cancel"),
            Policy(ask="operator"),
            Policy(ask_seconds=1.0),
        ]
        assert len({policy.digest for policy in policies}) == len(policies)
