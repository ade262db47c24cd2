"""A model of the worlds behind the operator's ports: API server, registry, node agent, users.

It is small enough to be run thousands of times a second, and strict enough to tell when a VM's state was lost: it knows what
every VM's memory holds, which no real part of the system does.
"""
