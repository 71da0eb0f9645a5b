#!/bin/sh
# Generates the client from the API's document:
#
#   clients/python/generate.sh [FOLDER [PYTHON]]
#
# The package tenure_client is put into FOLDER, this script's own by default, by the generator that PYTHON has;
# without PYTHON, by one that is fetched for this and removed again.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here}
python=${2:-}
if [ -z "$python" ]; then
  env=$(mktemp -d)
  trap 'rm -rf "$env"' EXIT
  python3 -m venv "$env"
  python=$env/bin/python
  "$python" -m pip install --quiet --no-compile --disable-pip-version-check -r "$here/requirements.txt"
fi
"$python" -m openapi_python_client generate --path "$here/../../web/internal/api/openapi.json" --config "$here/config.yaml" \
  --meta none --overwrite --fail-on-warning --output-path "$folder/tenure_client"
