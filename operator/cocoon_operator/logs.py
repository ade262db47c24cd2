"""Log lines for people or for machines: structlog in front, the standard library behind, Kopf's lines included."""

from __future__ import annotations

import logging
import sys
from typing import Final

import structlog

# Kopf says "Handler succeeded" for every event of every object, and greets itself at length.
_QUIET: Final = {"kopf.objects": logging.WARNING, "kopf": logging.WARNING, "aiohttp.access": logging.WARNING}

_BEFORE: Final[list[structlog.types.Processor]] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def configure(level: str, form: str) -> None:
    """Write everything to standard output; ``form`` is ``text`` or ``json``."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_BEFORE,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_BEFORE,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_last(form)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("WARNING" if level == "warn" else level.upper())
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, root.level))


def configure_beside_kopf() -> None:
    """Leave output to ``kopf run``, which has set up the standard library already; render our lines for it."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"], drop_missing=True),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)


def _last(form: str) -> list[structlog.types.Processor]:
    if form == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return [_one_line, structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty())]


def _one_line(_: object, __: str, entry: structlog.types.EventDict) -> structlog.types.EventDict:
    """Escape control characters of libraries' texts, which may repeat what a stranger sent; values are escaped anyway."""
    text = str(entry.get("event", ""))
    entry["event"] = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return entry
