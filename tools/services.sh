#!/usr/bin/env bash
# Installs the databases, drivers and the browser that the tests start, if the user may install packages. Tests of a
# missing service are skipped; with ALL_TEST_SERVICES=1 (as in continuous integration) they fail instead.
set -euo pipefail
packages=()
need() { [ -e "$1" ] || packages+=("${@:2}"); }
need /usr/share/java/postgresql.jar libpostgresql-jdbc-java
need /usr/share/java/sqlite-jdbc.jar libxerial-sqlite-jdbc-java
need /usr/share/java/mariadb-java-client.jar libmariadb-java
need /usr/sbin/mariadbd mariadb-server-core mariadb-client-core
compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null || packages+=(postgresql)
need /usr/bin/chromium chromium fonts-dejavu-core
[ ${#packages[@]} = 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing for the tests: ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q >/dev/null
  apt-get install -qy --no-install-recommends "${packages[@]}" >/dev/null
else
  echo "Not installed, so their tests will be skipped: ${packages[*]}" >&2
fi
