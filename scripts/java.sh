#!/usr/bin/env bash
# Prints the home of a Java that Spark 4 runs on; installs one on Debian and Ubuntu when run as root and none is there.
# Looked at in this order: JAVA_HOME, `java` on the PATH, the places where systems keep their Javas.
set -euo pipefail

supported="17 21 25"

# java_home_of COMMAND: prints the home if COMMAND is a supported Java, fails otherwise.
java_home_of() {
  local settings version home
  settings=$("$1" -XshowSettings:properties -version 2>&1) || return 1
  version=$(sed -n 's/^ *java\.specification\.version = //p' <<<"$settings")
  home=$(sed -n 's/^ *java\.home = //p' <<<"$settings")
  [ -n "$home" ] && [[ " $supported " == *" $version "* ]] && printf '%s\n' "$home"
}

find_java() {
  local candidate
  for candidate in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} "$(command -v java || true)" \
    /usr/lib/jvm/*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java /opt/homebrew/opt/openjdk*/bin/java; do
    [ -x "$candidate" ] && java_home_of "$candidate" && return 0
  done
  return 1
}

# Debian 12 has Java 17, Debian 13 has 21: the first one that this release knows.
install_java() {
  command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ] || return 1
  local package
  echo "No Java of version ${supported// / or } found: installing one with apt-get." >&2
  apt-get update >&2 || return 1
  for package in openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless; do
    if [ -n "$(apt-cache search --names-only "^$package\$")" ]; then
      DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package" >&2
      return
    fi
  done
  return 1
}

find_java && exit 0
install_java && find_java && exit 0
echo "Headrace needs Java ${supported// / or } and found none: install one (Debian or Ubuntu: apt-get install openjdk-17-jre-headless or openjdk-21-jre-headless; macOS: brew install openjdk@21) or point JAVA_HOME at it." >&2
exit 1
