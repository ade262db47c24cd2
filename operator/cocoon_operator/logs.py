"""Log lines for people or for machines: structlog in front, the standard library behind, Kopf's lines included (S328).

A line is a message and what belongs to it, as ``key=value``: the set and its generation for every line of a pass, then what the
line itself says, such as the pod, in the order in which it was bound. Of libraries only what is meant for people passes:
nothing below ``info``, whatever our own level is. Nothing that looks like a secret leaves the process.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

import structlog
from typing_extensions import override

OURS: Final = "cocoon_operator"
REDACTED: Final = "[redacted]"

# Kopf says "Handler succeeded" for every event of every object, and greets itself at length.
_QUIET: Final = {"kopf.objects": logging.WARNING, "kopf": logging.WARNING, "aiohttp.access": logging.WARNING}

_HEADER: Final = ("timestamp", "level", "logger", "message")

_SECRET_KEY: Final = re.compile(r"(?i)authorization|password|passwd|secret|(?<![a-z])token(?![a-z])|credential")
_SECRET_TEXT: Final = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}"), rf"\1 {REDACTED}"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"), REDACTED),
    (re.compile(r"(?<=://)[^\s/@]+@"), f"{REDACTED}@"),
    (re.compile(r"(?i)((?:access_|refresh_|identity)?token|password|secret|signature)([\"']?\s*[=:]\s*[\"']?)[^\s\"'&,}]+"),
     rf"\1\2{REDACTED}"),
)  # fmt: skip


def configure(level: str, form: str) -> None:
    """Write everything to standard output; ``form`` is ``text`` or ``json``."""
    _configure_front(*_before(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter)
    handler = logging.StreamHandler(sys.stdout)
    handler.addFilter(_complete)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_before(),
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                redact,
                *_last(form),
            ],
        )
    )
    least = logging.getLevelNamesMapping()["WARNING" if level == "warn" else level.upper()]
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(least, logging.INFO))
    logging.getLogger(OURS).setLevel(least)
    for name, loudest in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, loudest))


def configure_beside_kopf() -> None:
    """Leave output to ``kopf run``, which has set up the standard library already, time and level included."""
    _configure_front(
        _context_first,
        structlog.processors.format_exc_info,
        redact,
        structlog.processors.KeyValueRenderer(key_order=["event"], drop_missing=True),
    )
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)


def redact(_: Any, __: str, line: structlog.types.EventDict) -> structlog.types.EventDict:
    """Take out what looks like a secret: by the name of its key, or by its form."""
    return {key: REDACTED if _SECRET_KEY.search(key) else _without_secrets(value) for key, value in line.items()}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        for pattern, instead in _SECRET_TEXT:
            value = pattern.sub(instead, value)
        return value
    if isinstance(value, Mapping):
        return redact(None, "", {str(key): item for key, item in value.items()})
    if isinstance(value, list | tuple | set | frozenset):
        return [_without_secrets(item) for item in value]
    return value


class _Complete(logging.Filter):
    """Lets a line of a library pass whose arguments do not fit its message; without, it would be lost in a traceback."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        try:
            record.getMessage()
        except (TypeError, ValueError, KeyError):
            record.msg, record.args = str(record.msg), ()
        return True


_complete: Final = _Complete()


def _configure_front(*processors: structlog.types.Processor) -> None:
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *processors],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _before() -> list[structlog.types.Processor]:
    return [
        _context_first,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _context_first(_: Any, __: str, line: structlog.types.EventDict) -> structlog.types.EventDict:
    """What the pass has bound, by name since a context keeps no order, was there before what the line says."""
    return {**dict(sorted(structlog.contextvars.get_contextvars().items())), **line}


def _header_first(_: Any, __: str, line: structlog.types.EventDict) -> structlog.types.EventDict:
    return {**{key: line.pop(key) for key in _HEADER if key in line}, **line}


def _last(form: str) -> list[structlog.types.Processor]:
    if form == "json":
        return [
            structlog.processors.EventRenamer("message"),
            _header_first,
            structlog.processors.JSONRenderer(),
        ]
    return [_one_line, structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty(), sort_keys=False, pad_event_to=0)]


def _one_line(_: Any, __: str, line: structlog.types.EventDict) -> structlog.types.EventDict:
    """Escape control characters of libraries' texts, which may repeat what a stranger sent; values are escaped anyway."""
    line["event"] = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(line.get("event", "")))
    return line
