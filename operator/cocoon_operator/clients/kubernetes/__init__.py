"""Raw JSON over one session: few verbs, an explicit status check, an error tree (``docs/design/architecture.md``)."""
