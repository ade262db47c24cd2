"""What a run starts from and what it ends with: the two values between ``engine`` and ``reconcile``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cocoon_operator.api.hibernation import Hibernation
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile.objects import SetObject


@dataclass(frozen=True, slots=True)
class View:
    """One frozen picture of everything that lives under a set's key, the operator's own last writes included (W-59).

    ``set`` is None when no such CocoonSet exists. ``pods`` are all pods with the set's label, of any owner, terminating ones
    too. ``hibernations`` are the CocoonHibernations that map to the set by name; ``driven`` names those whose status is
    written under this key, since the same name can map to more than one set.
    """

    set: SetObject | None
    pods: tuple[Pod, ...]
    hibernations: tuple[Hibernation, ...]
    now: datetime
    driven: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    ``requeue_after``: seconds until the next run even if nothing happens; None waits for an event. ``error``: something did
    not work; the key runs again with back-off, whatever ``requeue_after`` says.
    """

    requeue_after: float | None = None
    error: Exception | None = None
