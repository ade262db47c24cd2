"""Decisions: what a CocoonSet's pods and tags shall be, one file a concern.

The worlds are seen only through :mod:`cocoon_operator.reconcile.ports`, so every decision is tested without them.
"""
