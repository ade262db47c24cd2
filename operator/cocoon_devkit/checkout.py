"""Where the project's own files lie."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout; only files of a checkout may be sought here, an installed wheel has none of them."""

TOOL_MODULES = ROOT / "hack" / "tools"
REQUIREMENTS = ROOT / "requirements"
CRDS = ROOT / "crds"
TOOLS_VENV = ROOT / ".tools"
DEV_STATE = ROOT / ".dev"
