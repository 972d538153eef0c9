#!/usr/bin/env bash
# Installs the databases, drivers and browser that the tests use, if the user may install packages. Tests of a
# missing service are skipped; with ALL_TEST_SERVICES=1 (as in continuous integration) they fail instead.
set -euo pipefail
packages=()
require() { [ -e "$1" ] || packages+=("${@:2}"); }
require /usr/share/java/postgresql.jar libpostgresql-jdbc-java
require /usr/share/java/sqlite-jdbc.jar libxerial-sqlite-jdbc-java
require /usr/share/java/mariadb-java-client.jar libmariadb-java
require /usr/sbin/mariadbd mariadb-server-core mariadb-client-core
compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null || packages+=(postgresql)
require /usr/bin/chromium chromium fonts-dejavu-core
[ ${#packages[@]} = 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing for the tests: ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q >/dev/null
  apt-get install -qy --no-install-recommends "${packages[@]}" >/dev/null
else
  echo "Not installed, so their tests will be skipped: ${packages[*]}" >&2
fi
