"""Kubernetes quantities as text and as numbers (contract 3.5, S044).

The canonical text is what the storage annotation carries. Building a pod and judging drift both use it, so a text that
differs from the one of the Go operator in one byte would recreate every VM with a storage field. That is why the cases
are kept in which Go hands back the text as it was written (``05Gi``, ``1E3``, ``1.500``) although it is not canonical.

One deliberate difference: from 1000E on Go drops the suffix, and with it the value (``1000E`` becomes ``1``); here the
value is kept.

Exponents are bounded, because the API server is not: a pod with ``1e2000000000`` in it keeps it computing for minutes
(seen on 1.37). A number is held as (mantissa, exponent of ten) and is not expanded.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

Quantity: TypeAlias = str | int | float

PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
"""What the CRD lets through. Exponents with a fraction pass it and are refused here, as they are by Go."""

_GRAMMAR: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<power>[+-]?[0-9]+))?",
    re.ASCII,
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_NANO: Final = -9
_EXA: Final = 18
_BINARY_CAP: Final = 2**63 - 1
_EXPONENTS: Final = range(-1024, 1025)
_LONGEST_TEXT: Final = 1024
_SHORT_DIGITS: Final = 18


class QuantityError(ValueError):
    """The value is not a quantity; the message says why."""


def canonical(value: Quantity) -> str:
    """Return the canonical text, e.g. ``1Ti`` for ``1024Gi`` and ``1536Mi`` for ``1.5Gi``.

    Raises :class:`QuantityError` when the value is no quantity.
    """
    return _read(_text(value)).text


def same(a: Quantity, b: Quantity) -> bool:
    """Whether two quantities are the same number, however they are written. Raises :class:`QuantityError`."""
    return _read(_text(a)).number == _read(_text(b)).number


def is_zero(value: Quantity) -> bool:
    """Whether a quantity is zero. Raises :class:`QuantityError`."""
    return _read(_text(value)).number[0] == 0


def check(value: Quantity) -> None:
    """Raise :class:`QuantityError` when the value is no quantity."""
    _read(_text(value))


@dataclass(frozen=True, slots=True)
class _Reading:
    """A quantity read: its canonical text, and its number as mantissa (without factors of ten) and exponent of ten."""

    text: str
    number: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Parts:
    """A quantity taken apart: signed digits without the point, and what its suffix says."""

    digits: str
    negative: bool
    decimals: int
    suffix: str
    power: int | None

    @property
    def mantissa(self) -> int:
        return -int(self.digits) if self.negative else int(self.digits)

    @property
    def binary(self) -> int:
        """The power of 1024 of a binary suffix, 0 for every other one."""
        return _BINARY.index(self.suffix) if self.suffix.endswith("i") else 0

    @property
    def exponent(self) -> int:
        """The power of ten by which ``mantissa`` is scaled, the decimals taken into account."""
        return (_DECIMAL.get(self.suffix, 0) if self.power is None else self.power) - self.decimals


@lru_cache(maxsize=4096)
def _read(text: str) -> _Reading:
    parts = _split(text)
    mantissa, exponent = _number(parts)
    if mantissa == 0:
        return _Reading("0", (0, 0))
    return _Reading(text if _kept_verbatim(parts) else _render(parts, mantissa, exponent), (mantissa, exponent))


def _text(value: Quantity) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuantityError("must be a quantity: a string or a number")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise QuantityError("must be a finite number")
        return repr(int(value)) if value.is_integer() and abs(value) < 2**63 else repr(value)
    if abs(value) >= 10**_LONGEST_TEXT:
        raise QuantityError(f"must not have more than {_LONGEST_TEXT} digits")
    return str(value)


def _split(text: str) -> _Parts:
    if len(text) > _LONGEST_TEXT:
        raise QuantityError(f"must not be longer than {_LONGEST_TEXT} characters")
    match = _GRAMMAR.fullmatch(text)
    if match is None or not (match["whole"] or match["fraction"]):
        raise QuantityError(f"must be a quantity such as 100Gi, 1.5G or 500m, not {text[:40]!r}")
    power = int(match["power"]) if match["power"] else None
    if power is not None and power not in _EXPONENTS:
        raise QuantityError(f"must have an exponent of at most {_EXPONENTS[-1]}, not {text[:40]!r}")
    fraction = match["fraction"] or ""
    whole = match["whole"].lstrip("0") or "0"
    return _Parts(whole + fraction, match["sign"] == "-", len(fraction), match["suffix"] or "", power)


def _number(parts: _Parts) -> tuple[int, int]:
    """Return mantissa and exponent: rounded away from zero to nano, capped if binary, no factor of ten left."""
    mantissa, exponent = _without_tens(parts.mantissa * 1024**parts.binary, parts.exponent)
    if exponent < _NANO:
        mantissa, exponent = _without_tens(_round_up(mantissa, _NANO - exponent), _NANO)
    if parts.binary and abs(mantissa) * 10 ** max(exponent, 0) > _BINARY_CAP * 10 ** max(-exponent, 0):
        return _without_tens(-_BINARY_CAP if parts.negative else _BINARY_CAP, 0)
    return mantissa, exponent


def _without_tens(mantissa: int, exponent: int) -> tuple[int, int]:
    if mantissa == 0:
        return 0, 0
    stripped = str(mantissa).rstrip("0")
    zeros = len(str(mantissa)) - len(stripped)
    return int(stripped), exponent + zeros


def _round_up(mantissa: int, places: int) -> int:
    """Divide by ten to the ``places``, away from zero."""
    sign = -1 if mantissa < 0 else 1
    quotient, remainder = divmod(abs(mantissa), int("1" + "0" * places))
    return sign * (quotient + (1 if remainder else 0))


def _kept_verbatim(parts: _Parts) -> bool:
    """Whether Go takes the text for canonical at first sight and keeps it.

    It looks only at numbers that fit its fast path: up to 18 digits; with a binary suffix no decimals, and the fewer
    digits the larger the suffix.
    """
    if parts.binary:
        room = 14 - len(parts.digits) - 3 * parts.binary
        return parts.decimals == 0 and room >= 0 and parts.mantissa % 8 != 0
    if len(parts.digits) > _SHORT_DIGITS or parts.exponent < _NANO:
        return False
    return parts.exponent % 3 == 0 and not parts.digits.endswith("000") and parts.digits[0] != "0"


def _render(parts: _Parts, mantissa: int, exponent: int) -> str:
    if parts.binary:
        # The cap of binary quantities bounds the exponent: the number may be expanded.
        whole = mantissa * 10 ** max(exponent, 0)
        if exponent >= 0 and abs(whole) >= 1024:
            return _render_binary(whole)
    if parts.power is not None:
        mantissa, exponent = mantissa * 10 ** (exponent % 3), exponent - exponent % 3
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    shift = exponent % 3 if exponent <= _EXA else exponent - _EXA
    return f"{mantissa * 10**shift}{_DECIMAL_SUFFIX[exponent - shift]}"


def _render_binary(whole: int) -> str:
    power = 0
    while whole % 1024 == 0:
        whole //= 1024
        power += 1
    return f"{whole}{_BINARY[power]}"
