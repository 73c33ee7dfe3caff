"""Prints what is wrong with an OpenAPI 3.1 document; exits with 1 if anything is.

Argument: the path of the document.
"""

import json
import sys

from openapi_spec_validator import OpenAPIV31SpecValidator

with open(sys.argv[1], encoding="utf-8") as file:
    document = json.load(file)
errors = list(OpenAPIV31SpecValidator(document).iter_errors())
for error in errors:
    print("/".join(str(part) for part in error.absolute_path), error.message.splitlines()[0])
sys.exit(1 if errors else 0)
