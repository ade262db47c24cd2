"""Durations as Go writes them, which the contract's messages contain (``3m0s``)."""

from __future__ import annotations

from datetime import timedelta


def go_duration(value: timedelta) -> str:
    """Return whole milliseconds in Go's notation: ``1h0m0s``, ``3m0s``, ``1.5s``, ``250ms``. Negative values are not expected."""
    millis = round(value.total_seconds() * 1000)
    if millis < 1000:
        return f"{millis}ms" if millis else "0s"
    minutes, rest = divmod(millis, 60_000)
    seconds = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds
