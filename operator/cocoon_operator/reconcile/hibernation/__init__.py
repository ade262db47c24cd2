"""CocoonHibernations: who decides, the state machine, what is said (contract 5, ``docs/design/hibernation.md``)."""
