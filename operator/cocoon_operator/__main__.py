"""``python -m cocoon_operator`` is ``cocoon-operator``."""

from cocoon_operator.app import main

main()
