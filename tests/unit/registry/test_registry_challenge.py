"""WWW-Authenticate, as servers really send it and as RFC 7235 allows it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocoon_operator.clients.registry.challenge import Challenge, choose_challenge, parse_challenges

TOKENS = st.text("abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~", min_size=1, max_size=12)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)


@pytest.mark.parametrize(
    ("header", "challenges"),
    [
        ("", []),
        ("Basic", [Challenge("basic")]),
        ('Basic realm="x"', [Challenge("basic", {"realm": "x"})]),
        ("Basic realm=x", [Challenge("basic", {"realm": "x"})]),
        (
            'Bearer realm="https://auth.example.com/token",service="registry",scope="repository:a/b:pull,push"',
            [
                Challenge(
                    "bearer",
                    {
                        "realm": "https://auth.example.com/token",
                        "service": "registry",
                        "scope": "repository:a/b:pull,push",
                    },
                )
            ],
        ),
        ('BEARER Realm = "a" , SERVICE="b"', [Challenge("bearer", {"realm": "a", "service": "b"})]),
        ('Bearer realm="a" service="b"', [Challenge("bearer", {"realm": "a", "service": "b"})]),
        (r'Basic realm="say \"hi\", \\ twice"', [Challenge("basic", {"realm": r'say "hi", \ twice'})]),
        ('Negotiate, Basic realm="x"', [Challenge("negotiate"), Challenge("basic", {"realm": "x"})]),
        ('Negotiate YWJj==, Basic realm="x"', [Challenge("negotiate"), Challenge("basic", {"realm": "x"})]),
        (
            'Basic realm="x", Bearer realm="y",service="z"',
            [Challenge("basic", {"realm": "x"}), Challenge("bearer", {"realm": "y", "service": "z"})],
        ),
        (', ,Basic realm="x",,', [Challenge("basic", {"realm": "x"})]),
        ('Basic realm="never closed', [Challenge("basic")]),
        ('Bearer realm="a", realm="b"', [Challenge("bearer", {"realm": "a"})]),
        ('"not a scheme"', []),
    ],
)
def test_parse(header: str, challenges: list[Challenge]) -> None:
    assert parse_challenges(header)[: len(challenges)] == challenges
    assert len(parse_challenges(header)) >= len(challenges)


@given(TOKENS, st.dictionaries(TOKENS, VALUES, min_size=1, max_size=4))
def test_what_is_written_by_the_rules_is_read_back(scheme: str, parameters: dict[str, str]) -> None:
    quoted = [name + '="' + value.replace("\\", r"\\").replace('"', r"\"") + '"' for name, value in parameters.items()]
    assert parse_challenges(f"{scheme} {', '.join(quoted)}") == [Challenge(scheme, parameters)]


@given(st.text(max_size=80))
def test_garbage_is_no_challenge_that_can_be_met_and_never_raises(header: str) -> None:
    chosen = choose_challenge([header])
    assert chosen is None or chosen.scheme in {"basic", "bearer"}


@pytest.mark.parametrize(
    ("headers", "scheme"),
    [
        ([], None),
        (["Negotiate", "Digest realm=x"], None),
        (["Bearer service=x"], None),
        (["Negotiate", 'Basic realm="x"'], "basic"),
        (['Bearer realm="https://a/t"', "Basic"], "bearer"),
        (["Bearer service=x, Basic realm=y"], "basic"),
    ],
)
def test_the_first_challenge_that_can_be_met_is_chosen(headers: list[str], scheme: str | None) -> None:
    chosen = choose_challenge(headers)
    assert (chosen.scheme if chosen else None) == scheme
