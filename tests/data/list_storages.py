"""Lists storages with the client that openapi-python-client has generated.

Arguments: the folder that contains the package `tracehold_client`, and the URL of the server.
"""

import importlib
import pathlib
import sys

folder, url = sys.argv[1:]
sys.path.insert(0, folder)
for module in sorted(pathlib.Path(folder, "tracehold_client").rglob("*.py")):
    name = module.relative_to(folder).with_suffix("").as_posix().replace("/", ".")
    importlib.import_module(name.removesuffix(".__init__"))

from tracehold_client import Client  # noqa: E402
from tracehold_client.api.storages import list_storages  # noqa: E402

for storage in list_storages.sync(client=Client(base_url=url)).items:
    print(storage.name, storage.state)
