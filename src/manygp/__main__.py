"""`python -m manygp` is the command `manygp`."""

from manygp._entry_point import main

main()
