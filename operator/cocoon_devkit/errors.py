"""What can go wrong in the devkit, as sentences a developer can act on."""

from __future__ import annotations


class DevkitError(Exception):
    """Something a developer has to know; ``str()`` is one or more full sentences without a traceback's help."""


class ToolsError(DevkitError):
    """A binary can neither be found nor built."""


class ProcessFailedError(DevkitError):
    """A process ended early, did not get ready or did not end; the message carries the tail of its log."""


class KubectlError(DevkitError):
    """kubectl ended with another code than 0; the message carries what it wrote to standard error."""


class HelmError(DevkitError):
    """helm ended with another code than 0; the message carries what it wrote to standard error."""


class NotAvailableError(DevkitError):
    """This kind of cluster cannot do that (an explicit kubeconfig has no audit log and no process ids)."""
