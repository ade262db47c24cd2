"""What can go wrong with a request to the Kubernetes API, as one tree.

The tree is part of ``api`` because both sides need it: clients raise it, decisions catch it.
"""

from __future__ import annotations


class KubeError(Exception):
    """A request to the Kubernetes API that did not succeed.

    ``outcome_known`` is False when a *write* may have happened all the same (no answer, or a 5xx): whoever gets it reads
    the object live before the next decision about it.
    """

    outcome_known = True

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason


class NotFoundError(KubeError):
    """404: the object, or its kind, does not exist."""


class AlreadyExistsError(KubeError):
    """409 AlreadyExists: the name is taken, maybe by an object that is still terminating."""


class ConflictError(KubeError):
    """409 Conflict: a resourceVersion or UID precondition failed. The view was stale."""


class InvalidError(KubeError):
    """400 or 422: the API server refuses the object; the message names the field."""


class ForbiddenError(KubeError):
    """401 or 403: rights, quota or admission refuse it; the message says which."""


class ExpiredError(KubeError):
    """410: the resourceVersion is too old; list again."""


class ThrottledError(KubeError):
    """429: try again after ``retry_after`` seconds."""

    def __init__(self, message: str, *, status: int = 429, reason: str = "", retry_after: float = 1.0) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after = retry_after


class UnavailableError(KubeError):
    """No answer, a 5xx, or an answer that cannot be read. A write may have happened."""

    outcome_known = False
