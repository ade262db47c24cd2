"""What the API server refuses of a CocoonSet beyond the types of its fields, as CEL rules (admission CS-16 to CS-53).

They refuse what could never run. A set that was stored before they were there goes on working: the API server skips a
rule whose part of the object did not change, and a rule that hangs higher up than what it judges looks at the old
object itself, so that such a set can still be suspended, woken and deleted (CS-3).
"""

from __future__ import annotations

from typing import Final

from cocoon_operator.api.wire import Rule, rules

MAX_IMAGE: Final = 4096
"""Characters of an image: as long as a URL gets. The API server wants a bound where a pattern is matched."""

MAX_NAME: Final = 63
"""Characters of a toolbox's name, which is a label's value."""

MAX_TOOLBOXES: Final = 128
"""Toolboxes of a set. The API server wants a bound where names are compared with each other."""

_FORBIDDEN: Final = "FieldValueForbidden"
_REQUIRED: Final = "FieldValueRequired"

_COMPONENT: Final = r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*"
_REFERENCE: Final = rf"^{_COMPONENT}(/{_COMPONENT})*(:[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?$"

_NO_WINDOWS: Final = "self.backend != 'firecracker' || self.os != 'windows'"
_NO_URL: Final = "self.backend != 'firecracker' || !self.image.matches('^https?://')"
_NO_CLONE: Final = "self.backend != 'firecracker' || self.mode == 'run'"
_REFERENCE_ONLY: Final = f"self.mode != 'clone' || self.image.matches(r'{_REFERENCE}')"


def _machine_rules(applies: str, with_image: str) -> tuple[Rule, ...]:
    """What holds for agents and toolboxes alike, where ``applies`` (and ``with_image``) do not exempt them."""
    return (
        Rule(
            applies + _NO_WINDOWS, "must not be windows: backend firecracker has no windows guests", ".os", _FORBIDDEN
        ),
        Rule(
            with_image + _NO_URL,
            "must not be a URL: backend firecracker takes images from a registry only",
            ".image",
            _FORBIDDEN,
        ),
        Rule(applies + _NO_CLONE, "must be run: backend firecracker cannot clone", ".mode", _FORBIDDEN),
        Rule(
            with_image + _REFERENCE_ONLY,
            "must be repository[:tag], lower case and without a registry's port or a digest, since mode is clone",
            ".image",
        ),
    )


AGENT: Final = rules(*_machine_rules("", ""))

_STATIC_OR: Final = "self.mode == 'static' || "
TOOLBOX: Final = rules(
    Rule("!self.name.matches('^[0-9]+$')", "must not be a number: numbers are the agents' slots", ".name"),
    Rule(
        "self.mode != 'static' || (has(self.staticIP) && self.staticIP != '')",
        "is required in mode static",
        ".staticIP",
        _REQUIRED,
    ),
    Rule(
        "self.mode != 'static' || (has(self.staticVMID) && self.staticVMID != '')",
        "is required in mode static",
        ".staticVMID",
        _REQUIRED,
    ),
    Rule(
        _STATIC_OR + "(has(self.image) && self.image != '')",
        "is required in the modes run and clone",
        ".image",
        _REQUIRED,
    ),
    *_machine_rules(_STATIC_OR, _STATIC_OR + "!has(self.image) || "),
)

TOOLBOXES: Final = rules(
    # The names once, as a list: to look into each toolbox for each other one takes the API server seconds.
    Rule(
        "[self.map(t, t.name)].all(names, names.all(name, names.indexOf(name) == names.lastIndexOf(name)))",
        "every name must be given only once",
    ),
)

SPEC: Final = rules(
    Rule(
        "!has(self.hibernatePolicy) || self.hibernatePolicy != 'release' || "
        "((!has(self.agent.replicas) || self.agent.replicas == 0) && "
        "(!has(self.toolboxes) || size(self.toolboxes) == 0))",
        "hibernatePolicy=release requires agent.replicas=0 and no toolboxes",
    ),
    Rule(
        "!has(oldSelf.snapshotCompatibilityClass) || (has(self.snapshotCompatibilityClass) && "
        "self.snapshotCompatibilityClass == oldSelf.snapshotCompatibilityClass)",
        "snapshotCompatibilityClass is immutable once set",
    ),
    Rule(
        "!has(self.toolboxes) || [oldSelf.hasValue() && has(oldSelf.value().toolboxes) && "
        "oldSelf.value().agent.backend == self.agent.backend ? "
        "oldSelf.value().toolboxes.map(old, old.backend != self.agent.backend, old.name) : []].all(kept, "
        "self.toolboxes.all(t, t.mode == 'static' || t.backend == self.agent.backend || t.name in kept))",
        "every toolbox that is not static must have the backend of the agent",
        ".toolboxes",
        ratchets=True,
    ),
)
