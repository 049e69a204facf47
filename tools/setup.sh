#!/bin/bash
# Installs what the project needs from Debian 12. Quick and quiet when all is there; needs root only
# when something is missing.
# usage: tools/setup.sh GROUP...    groups: build test fetch fuzz format
set -euo pipefail

declare -A groups=(
  [build]='g++ cmake ninja-build ccache pkg-config libcli11-dev nlohmann-json3-dev libpcre2-dev libsqlite3-dev liburing-dev libeigen3-dev'
  [test]='libgtest-dev libgmock-dev python3-venv time'
  [fetch]='python3 python3-pip ca-certificates'
  [fuzz]='clang-14 libclang-rt-14-dev'
  [format]='clang-format'
)

if [ $# -eq 0 ]; then
  sed -n '2,4s/^# //p' "$0"
  exit 2
fi
packages=()
for group in "$@"; do
  if [ -z "${groups[$group]:-}" ]; then
    echo "setup: no group '$group'; there are: ${!groups[*]}" >&2
    exit 2
  fi
  read -ra more <<<"${groups[$group]}"
  packages+=("${more[@]}")
done

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this is not Debian; make sure that you have the equivalents of: ${packages[*]}" >&2
  exit 0
fi

# dpkg-query fails when it doesn't know a package, and still prints the others.
installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null |
  sed -n 's/^installed //p') || true
missing=()
for package in "${packages[@]}"; do
  grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

install=(apt-get install -y --no-install-recommends "${missing[@]}")
if [ "$(id -u)" -ne 0 ]; then
  echo "setup: these packages are missing; install them, then run this again:" >&2
  echo "  sudo ${install[*]}" >&2
  exit 1
fi
echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt-get update && "${install[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "setup: installing failed; the last lines of apt-get are above" >&2
  exit 1
fi
