"""The agent's last word on a save comes in two writes; whoever acts on it waits for the second, not for long."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile.run import Run

STATUS_FOLLOWS: Final = timedelta(seconds=2)


def status_follows(run: Run, pod: Pod) -> bool:
    """Whether ``hibernated`` was said and the container still runs in the pod's status.

    Acting in between would meet that status push with a stale resourceVersion, and store a status that is outdated at once.
    """
    if not pod.running:
        run.memory.hibernated_at.pop(pod.uid, None)
        return False
    since = run.memory.hibernated_at.setdefault(pod.uid, run.now)
    left = STATUS_FOLLOWS - (run.now - since)
    if left > timedelta():
        run.come_back(left.total_seconds())
    return left > timedelta()
