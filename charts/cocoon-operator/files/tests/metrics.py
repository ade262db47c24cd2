"""What `helm test` runs: read the metrics at the URL given until they are the operator's, a minute at most."""

# ruff: noqa: INP001, T201 - no package, and its output is the result
import sys
import time
import urllib.request

FAMILY = "leader_election_master_status"


def main(url: str) -> int:
    """Return the exit code: 0 once the operator's metrics were read."""
    problem = "nothing was tried"
    for _ in range(30):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - the URL is the chart's own Service
                if FAMILY in answer.read().decode():
                    print(f"{url} has the metrics of the operator")
                    return 0
                problem = f"no {FAMILY} among the metrics"
        except OSError as error:
            problem = str(error)
        time.sleep(2)
    print(f"{url}: {problem}", file=sys.stderr)
    return 1


sys.exit(main(sys.argv[1]))
