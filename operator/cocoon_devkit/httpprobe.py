"""Asks a server whether it is there."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from pathlib import Path

_SECONDS = 2.0


def answers(url: str, *, ca: Path | None = None, headers: dict[str, str] | None = None) -> int | None:
    """The status of a GET, or None when there is no answer (yet).

    ``ca`` is the certificate to trust; a server that makes it itself may not have done so yet, which is no answer too.
    The caller's proxy settings do not apply: everything here is on this machine.
    """
    try:
        context = ssl.create_default_context(cafile=str(ca)) if ca is not None else None
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        request = urllib.request.Request(url, headers=headers or {})  # noqa: S310 (the URL is ours)
        with opener.open(request, timeout=_SECONDS) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None
