"""Print the oldest versions that the dependencies of pyproject.toml allow, as pip wants them."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
for dependency in project["dependencies"]:
    name, oldest = re.fullmatch(r"([\w-]+)>=([\d.]+)", dependency).groups()
    print(f"{name}=={oldest}.*")
