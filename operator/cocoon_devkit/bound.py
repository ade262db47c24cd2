"""Runs a command that dies with its parent: ``python bound.py PARENT_PID COMMAND...``.

A script of its own, because code between fork and exec of a process with threads can deadlock. It becomes the command
by exec, so that the process id stays. Only Linux has the mechanism; elsewhere the command runs unbound and the next
start sweeps what was left (``scratch``).
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have died before the call: then nobody would ever send the signal.
        if os.getppid() != parent:
            os._exit(1)
    os.execvp(command[0], command)  # noqa: S606 (a shell would be one process more)


if __name__ == "__main__":
    main()
