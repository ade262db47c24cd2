"""Prints log lines as the operator would: ``python loglines.py <text|json|kopf> <level>``. A process of its own, so that the
configuration of the standard library's logging stays its own."""

from __future__ import annotations

import logging
import sys

import structlog

from cocoon_operator import logs

_PASSWORD = "hunter2"


def main(form: str, level: str) -> None:
    if form == "kopf":
        logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level=level.upper())
        logs.configure_beside_kopf()
    else:
        logs.configure(level, form)
    log = structlog.get_logger("cocoon_operator.sample")
    with structlog.contextvars.bound_contextvars(cocoonset="ns/demo", generation=3):
        log.info("pod created", pod="demo-0", zone="b", also="two words")
        child = log.bind(first=1).bind(second=2)
        child.info("child", third=3)
        log.info("parent")
    log.debug("ours, for experts")
    log.info("forged", text="a\n2026-01-01T00:00:00Z [info] b")
    _secrets(log)
    _of_libraries()
    _errors(log)


def _secrets(log: structlog.stdlib.BoundLogger) -> None:
    log.info(
        "keys",
        password="hunter2",
        registry_token="hunter2",
        Authorization="hunter2",
        headers={"Cookie-Secret": "hunter2"},
    )
    log.info("texts", header="Bearer hunter2hunter2", url="https://me:hunter2@example.com/v2/")
    log.info("bodies", answer='{"access_token":"hunter2","expires_in":60}', sent=["identitytoken=hunter2&x=1"])
    log.info("jwt eyJhbGciOiJSUzI1NiJ9.hunter2hunter2.hunter2")
    try:
        _refuse(_PASSWORD)
    except ValueError:
        log.exception("with locals")


def _refuse(password: str) -> None:
    raise ValueError(f"https://me:{password}@example.com refused")


def _of_libraries() -> None:
    kopf = logging.getLogger("kopf")
    kopf.info("kopf greets")
    kopf.getChild("objects").info("Handler succeeded")
    kopf.getChild("activities").warning("told %s, not %d", "once")
    logging.getLogger("aiohttp.client").info("aiohttp tells %s", "all")
    for name in ("kopf.objects", "aiohttp.client", "asyncio"):
        logging.getLogger(name).debug("hunter2, for experts")
    logging.getLogger("aiohttp.client").warning("sent %s", {"Authorization": "Basic aHVudGVyMg=="})


def _errors(log: structlog.stdlib.BoundLogger) -> None:
    log.error("no error", error=None)
    log.error("none given", exc_info=None)
    log.exception("none raised")  # noqa: LOG004 - that is what is tried
    logging.getLogger("kopf.activities").error("none there", exc_info=(None, None, None))


if __name__ == "__main__":
    main(*sys.argv[1:])
