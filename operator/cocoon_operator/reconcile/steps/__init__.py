"""The ordered chain: one concern a file, each readable alone (``docs/design/intent.md``, "Order of the steps")."""
