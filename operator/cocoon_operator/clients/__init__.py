"""The two outside worlds: the Kubernetes API and the OCI registry."""
