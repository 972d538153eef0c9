#!/usr/bin/env bash
# Creates a virtual environment with Penstock, and installs Java if there is none that Spark supports.
# Arguments: the folder of the environment, and extras of the package, such as dev,delta (default: none).
# The output of installers is shown only if they fail.
set -euo pipefail
venv=$1
extras=${2:+[$2]}
python=${PYTHON:-python3}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

quietly() { "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }; }

java_major() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
  command -v "$java" >/dev/null 2>&1 || { echo 0; return; }
  "$java" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1
}

major=$(java_major)
if [ "${major:-0}" -lt 17 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing openjdk-17-jre-headless, as there is no Java 17 or newer"
    quietly apt-get update -q
    quietly env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends openjdk-17-jre-headless
  else
    echo "Spark needs Java 17 or newer, which is not installed." >&2
    echo "  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless" >&2
    echo "  Fedora:          sudo dnf install java-17-openjdk-headless" >&2
    echo "  macOS:           brew install openjdk@17" >&2
    exit 1
  fi
fi

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "Penstock needs Python 3.11 or newer; $python is $("$python" --version 2>&1). Set PYTHON=..." >&2
  exit 1
}
if ! "$python" -m venv "$venv" >"$log" 2>&1; then
  cat "$log" >&2
  echo "Cannot create a virtual environment; on Debian and Ubuntu: sudo apt-get install python3-venv" >&2
  exit 1
fi
echo "Installing Penstock into $venv${extras:+ with the extras $extras} (downloads Spark and other packages; a minute or two)"
quietly "$venv/bin/pip" install --disable-pip-version-check --editable ".$extras"
