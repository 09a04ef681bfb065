"""Where the real data sets are on this machine, if they are."""

import os
from pathlib import Path

HOMES = [os.environ.get("MANYGP_DATA"), Path(__file__).parents[3] / "shared" / "data"]
HOME = next((Path(home) for home in HOMES if home and Path(home).exists()), None)
