"""The contract as types: names, keys, the two kinds, and the typed view of a pod.

Nothing in here does I/O. Everything in here is public API of the package (``docs/contract``).
"""
