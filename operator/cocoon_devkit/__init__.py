"""What a laptop needs to work on the operator: a local control plane, a registry, a fake node agent, a demo.

Everything listens on 127.0.0.1 only, on free ports, and leaves no process, port or file behind. The operator itself
does not need this package.
"""
