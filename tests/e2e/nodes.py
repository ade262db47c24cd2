"""The imaginary nodes that every end-to-end test shares, and the image that their VMs are cloned from."""

NODES = ("n1", "n2")
PREFIX = "cocoon"
"""The path in the registry under which the VMs' repositories are."""
IMAGE = "base"
