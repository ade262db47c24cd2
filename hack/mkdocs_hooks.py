# ruff: noqa: INP001 - mkdocs loads it by its path
"""Makes the built pages agree with what a code host shows of the same files: anchors, and links that leave ``docs/``."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<=\]\()(?P<path>\.\./[^)\s#]+)")
_SOURCE = "https://github.com/cocoonstack/cocoon-operator/blob/main/"


def on_config(config: Any, **_: Any) -> Any:
    """Make anchors as code hosts do: every space is a dash, also beside a character that is left out."""
    config.mdx_configs["toc"]["slugify"] = lambda text, _: (
        re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
    )
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let a link to a file of the repository outside ``docs/`` lead to the file there."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def elsewhere(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link["path"]))
        return link["path"] if target.startswith("docs/") else _SOURCE + target

    return _LINK.sub(elsewhere, markdown)
