"""Names of trends; this module imports nothing, so that the command line can list them at once."""

TRENDS = ("auto", "none", "constant", "linear", "additive", "boosted")
