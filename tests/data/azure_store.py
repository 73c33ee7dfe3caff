"""Makes a container in Azurite, or lists its blobs, with requests that are signed by the key of the account.

azure_store.py create|keys PORT ACCOUNT KEY CONTAINER
"""

import base64
import hashlib
import hmac
import re
import sys
import urllib.parse
import urllib.request
from email.utils import formatdate

command, port, account, key, container = sys.argv[1:]


def ask(method, query):
    path = f"/{account}/{container}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
    # Method, eleven header fields that are not sent, ours, and the resource.
    text = f"{method}\n" + "\n" * 11
    text += "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    text += f"/{account}{path}" + "".join(f"\n{name}:{value}" for name, value in sorted(query.items()))
    signature = hmac.digest(base64.b64decode(key), text.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(signature).decode()}"
    headers["Content-Length"] = "0"
    url = f"http://127.0.0.1:{port}{path}?{urllib.parse.urlencode(query)}"
    request = urllib.request.Request(url, method=method, headers=headers)
    return urllib.request.urlopen(request).read().decode()


if command == "create":
    ask("PUT", {"restype": "container"})
else:
    marker = ""
    while True:
        text = ask("GET", {"restype": "container", "comp": "list", "marker": marker})
        print("\n".join(re.findall("<Name>(.*?)</Name>", text)))
        found = re.search("<NextMarker>(.+?)</NextMarker>", text)
        if not found:
            break
        marker = found[1]
