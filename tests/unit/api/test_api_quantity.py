"""Quantities: the canonical text of Kubernetes, and numbers that are never expanded."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocoon_operator.api.cocoonset import parse_spec
from cocoon_operator.api.quantity import PATTERN, Quantity, QuantityError, canonical, check, is_zero, same
from cocoon_operator.api.vmspec import VMSpec

VERIFIED: list[tuple[Quantity, str]] = [
    ("100Gi", "100Gi"),
    ("1024Gi", "1Ti"),
    ("1024Mi", "1Gi"),
    ("1.5Gi", "1536Mi"),
    ("0.5Gi", "512Mi"),
    ("1000Mi", "1000Mi"),
    ("1.1Gi", "1181116006400m"),
    ("100G", "100G"),
    ("100000000000", "100G"),
    (107374182400, "107374182400"),
    (1048576, "1048576"),
    ("1000k", "1M"),
    ("1000", "1k"),
    ("1e3", "1e3"),
    ("12e6", "12e6"),
    ("0.5", "500m"),
    ("0", "0"),
    (0, "0"),
    ("0Gi", "0"),
    ("-0.0", "0"),
    # Kept as they were written, although not canonical.
    ("+5Gi", "+5Gi"),
    ("05Gi", "05Gi"),
    ("1E3", "1E3"),
    ("1.500", "1.500"),
    ("5.", "5."),
    ("1e03", "1e03"),
    # Not kept: the number is too long for that, or has the wrong scale.
    ("+5Ei", "5Ei"),
    ("008Gi", "8Gi"),
    ("1E4", "10e3"),
    ("1.5", "1500m"),
    # Negative, small, large.
    ("-1024Gi", "-1Ti"),
    ("-0.5Ki", "-512"),
    ("0.5Ki", "512"),
    ("1023", "1023"),
    ("0.1n", "1n"),
    ("-0.1n", "-1n"),
    ("1e-10", "1e-9"),
    ("1e-1024", "1e-9"),
    ("10Ei", "9223372036854775807"),
    ("1e1024", "10e1023"),
    ("1000E", "1000E"),
    ("1E", "1E"),
    ("1Ei", "1Ei"),
    (1.5, "1500m"),
    (2.0, "2"),
]


@pytest.mark.scenario("S044")
@pytest.mark.parametrize(("value", "text"), VERIFIED)
def test_the_canonical_text(value: Quantity, text: str) -> None:
    assert canonical(value) == text


@pytest.mark.scenario("S044")
@pytest.mark.parametrize(("value", "text"), VERIFIED)
def test_building_writes_the_canonical_text_and_drift_finds_it_equal(value: Quantity, text: str) -> None:
    spec = parse_spec({"agent": {"image": "x", "storage": value}})
    built = VMSpec.for_agent(spec, "vk-ns-demo-0")
    assert built.storage == text
    assert VMSpec.from_annotations(built.to_annotations()) == VMSpec.for_agent(spec, "vk-ns-demo-0")


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            " 1",
            "1 ",
            "1\n",
            ".",
            "+",
            "1K",
            "1ki",
            "Gi",
            "1e",
            "1e2.5",
            "1e1025",
            "1e-1025",
            "1e2000000000",
            "1e99999999999",
            "0x1",
            "1_0",
            "\u0661",
        ),
        *("1" * 2000, 10**2000, True, None, float("nan"), float("inf"), [], {}, b"1"),
    ],
)
def test_what_is_no_quantity_is_refused_with_one_error(value: Any) -> None:
    for reader in (canonical, is_zero, check):
        with pytest.raises(QuantityError):
            reader(value)


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("1", "1000m", True),
        ("1Gi", 1073741824, True),
        ("0.1", "100m", True),
        ("1e3", "1k", True),
        ("1Ki", "1k", False),
        ("1", "-1", False),
        ("1E", "1Ei", False),
        ("1e1000", "1e1001", False),
        ("10e999", "1e1000", True),
        ("0", "0Gi", True),
    ],
)
def test_equality_is_that_of_the_numbers(left: Quantity, right: Quantity, equal: bool) -> None:
    assert same(left, right) is equal
    assert same(right, left) is equal


@pytest.mark.parametrize(("value", "zero"), [("0", True), ("-0", True), ("0.000Gi", True), (0, True), ("1n", False)])
def test_zero_is_zero_in_every_suffix(value: Quantity, zero: bool) -> None:
    assert is_zero(value) is zero


_SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e0", "e3", "E-3"]
_QUANTITIES = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "+", "-"]),
    st.from_regex(r"([0-9]{1,20}(\.[0-9]{0,12})?|\.[0-9]{1,12})", fullmatch=True),
    st.one_of(st.sampled_from(_SUFFIXES), st.integers(-30, 30).map("e{}".format)),
)


def _value(text: str) -> Fraction:
    """The number behind a text, computed in the plain way."""
    match = re.fullmatch(r"([+-]?)([0-9]*)\.?([0-9]*)(.*)", text)
    assert match is not None
    sign, whole, fraction, suffix = match.groups()
    number = Fraction(int(whole + fraction or "0"), 10 ** len(fraction)) * (-1 if sign == "-" else 1)
    if suffix.endswith("i"):
        return number * (1 << 10 * " KMGTPE".index(suffix[0]))
    if suffix[:1] in {"e", "E"} and len(suffix) > 1:
        return number * _power_of_ten(int(suffix[1:]))
    return number * _power_of_ten(3 * ("num kMGTPE".index(suffix or " ") - 3))


def _power_of_ten(exponent: int) -> Fraction:
    return Fraction(10 ** max(exponent, 0), 10 ** max(-exponent, 0))


@given(_QUANTITIES)
def test_the_canonical_text_is_its_own_and_keeps_the_value(text: str) -> None:
    once = canonical(text)
    assert canonical(once) == once
    assert same(once, text)
    value, kept = _value(text), _value(once)
    if abs(value) > 2**63 - 1 and text.endswith("i"):
        assert abs(kept) == 2**63 - 1
    elif (value * 10**9).denominator == 1:
        assert kept == value
    else:
        assert abs(value) < abs(kept) < abs(value) + Fraction(1, 10**9)


@given(_QUANTITIES, _QUANTITIES)
def test_the_canonical_text_is_one_the_schema_lets_through(left: str, right: str) -> None:
    assert re.search(PATTERN, canonical(left))
    assert same(left, right) == same(right, left)


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none(), st.lists(st.text())))
def test_garbage_raises_nothing_else(value: Any) -> None:
    try:
        text = canonical(value)
    except QuantityError:
        return
    assert canonical(text) == text
