"""The CocoonSet operator: what runs in a cluster.

Layers, each importing only those to its left: ``api`` <- ``reconcile`` <- ``engine`` <- ``handlers`` <- ``app``; ``clients``
(the two outside worlds) knows ``api`` only. ``docs/design/architecture.md`` tells why.
"""
