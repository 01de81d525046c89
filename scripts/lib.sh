# shellcheck shell=bash
# Makes .venv out of whatever this machine has; scripts/test and scripts/demo share it.
# Sourced from the repository root under `set -euo pipefail`. Talks on stderr only.

# Whoever set it did not think of a .venv of ours: every process that is started here would compile
# what it imports anew.
unset PYTHONDONTWRITEBYTECODE

root=$PWD
venv=$root/${KEPT_VENV:-.venv}
log=$root/.venv.log
stamp=$venv/kept-stamp

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

is_root_with_apt() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; }

apt_line() { printf 'apt-get update && apt-get install -y %s' "$*"; }

# apt_install PACKAGE...
apt_install() {
  local said
  say "you are root and $* is missing, so: $(apt_line "$@")"
  # A stale list is better than no attempt.
  apt-get update >>"$log" 2>&1 || say "apt-get update failed; using the lists at hand"
  # not straight to the log, to which others write meanwhile
  if ! said=$(DEBIAN_FRONTEND=noninteractive apt-get install -y "$@" 2>&1 </dev/null); then
    tail -n 5 <<<"$said" >&2
    say "apt-get install failed"
    return 1
  fi
}

# python_with MODULE: prints the first Python >= 3.11 that has the module; $PYTHON goes first.
python_with() {
  local name path
  for name in ${PYTHON:+"$PYTHON"} python3 python3.11 python3.12 python3.13 python3.14 python; do
    path=$(command -v "$name") || continue
    if "$path" -c "import sys, $1; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then
      printf '%s\n' "$path"
      return
    fi
  done
  return 1
}

# create_venv: an empty .venv with pip in it. Exits 2 with the line to type where it cannot.
create_venv() {
  local python
  # Debian's python3 comes without ensurepip; python3-venv carries it.
  if ! python=$(python_with ensurepip) && is_root_with_apt; then
    apt_install python3-venv || :
    python=$(python_with ensurepip) || python=
  fi
  if [ -n "$python" ]; then
    "$python" -m venv "$venv" >>"$log" 2>&1
    return
  fi
  say "no Python 3.11 or newer here can make a virtual environment; on Debian, as root: $(apt_line python3-venv)"
  if python=$(python_with virtualenv); then
    say "trying virtualenv instead"
    "$python" -m virtualenv -q "$venv" >>"$log" 2>&1
  elif command -v virtualenv >/dev/null && python=$(python_with sys); then
    say "trying virtualenv instead"
    virtualenv -q -p "$python" "$venv" >>"$log" 2>&1
  else
    exit 2
  fi
}

has_pip() { "$venv/bin/python" -c 'import pip' 2>/dev/null; }

# find_uv: prints the uv to install with: this machine's, or that of .venv.
find_uv() { command -v uv || command -v "$venv/bin/uv"; }

# fetch_uv: into .venv, where there is none, for it takes a tenth of pip's time. It reads neither
# pip.conf nor PIP_*: where pip was told of another index, or of none, none is fetched. What only adds
# to the index (extra-index-url, find-links) is found by pip, when uv could not.
fetch_uv() {
  local config
  if find_uv >/dev/null || ! has_pip; then return; fi
  config=$("$venv/bin/python" -m pip config list 2>/dev/null) || :
  if [[ $config == *.index-url=* || $config == *.no-index=* ]]; then return; fi
  "$venv/bin/python" -m pip install --no-compile uv==0.13.8 >>"$log" 2>&1 </dev/null || :
}

# pip_install ARG...: with uv where there is one; with pip where uv cannot.
pip_install() {
  local uv
  if uv=$(find_uv) &&
    "$uv" pip install --python "$venv/bin/python" "$@" >>"$log" 2>&1 </dev/null; then return; fi
  # not compiled: that takes half of the time, and Python compiles what it imports
  has_pip && "$venv/bin/python" -m pip install --no-compile "$@" >>"$log" 2>&1 </dev/null
}

# install_into_venv EXTRA, where the extra may be empty.
install_into_venv() {
  fetch_uv
  pip_install -e ".${1:+[$1]}"
}

# build_with_uv EXTRA.
build_with_uv() {
  command -v uv >/dev/null || return 1
  uv venv -q --python "${PYTHON:->=3.11}" "$venv" >>"$log" 2>&1 && install_into_venv "$1" && return
  say "uv could not do it ($(tail -n 1 "$log")); using pip"
  rm -rf "$venv"
  return 1
}

# fingerprint: changes when an install might come out differently.
fingerprint() { cat pyproject.toml src/kept/_version.py | cksum; }

# is_whole EXTRA: whether every requirement of kept and of its extra is there, with all its files.
is_whole() {
  "$venv/bin/python" - "$1" 2>/dev/null <<'PYTHON'
import os, re, sys
from importlib.metadata import distribution, distributions, requires
for line in requires("kept"):
    name, _, condition = line.partition(";")
    extra = re.search(r"""extra\s*==\s*['"](\w+)""", condition)
    if extra is None or extra[1] == sys.argv[1]:
        distribution(re.match(r"[\w.-]+", name)[0])
for found in distributions():
    folder = found.locate_file("")
    for file in found.files or ():
        if file.suffix != ".pyc" and not os.path.exists(os.path.join(folder, file)):
            sys.exit(f"{file} is gone")
PYTHON
}

# read_stamp: sets done_root, done_extra and done_print to what the last install noted.
read_stamp() {
  done_root='' done_extra='' done_print=''
  if [ -f "$stamp" ]; then
    { read -r done_root && read -r done_extra && read -r done_print; } <"$stamp" || done_root=
  fi
  done_extra=${done_extra#extra=}
}

# with_done EXTRA: prints the extra to install where another is there: `demo` after `test` uses what
# `test` made, which holds all that the demo needs, and leaves its tools there.
with_done() {
  if [ -z "$1" ] || [ "$done_extra" = dev ]; then printf '%s' "$done_extra"; else printf '%s' "$1"; fi
}

# is_done EXTRA: whether there is nothing left to install.
is_done() {
  local done_root done_extra done_print
  read_stamp
  [ "$done_root" = "$root" ] && [ "$done_print" = "$(fingerprint)" ] &&
    [ "$done_extra" = "$(with_done "$1")" ] && is_whole "$done_extra"
}

# ensure_venv EXTRA, where the extra may be empty. Does nothing when the stamp says it is done.
ensure_venv() {
  local extra=$1 done_root done_extra done_print print
  print=$(fingerprint)
  read_stamp

  # A copied checkout brings a .venv whose scripts point at the original.
  if [ "$done_root" = "$root" ] && is_whole "$done_extra"; then
    extra=$(with_done "$extra")
    if [ "$done_print" = "$print" ] && [ "$done_extra" = "$extra" ]; then return; fi
    say "bringing .venv up to date"
    rm -f "$stamp"
    : >"$log"
    if install_into_venv "$extra"; then
      write_stamp "$extra" "$print"
      return
    fi
    say "that failed; starting over"
  fi

  say "making .venv (once)"
  rm -rf "$venv"
  : >"$log"
  if ! build_with_uv "$extra"; then
    if ! { create_venv && install_into_venv "$extra"; }; then
      tail -n 20 "$log" >&2
      say "could not make .venv; the whole log is .venv.log"
      exit 2
    fi
  fi
  write_stamp "$extra" "$print"
}

# write_stamp EXTRA FINGERPRINT: the last thing an install does, so a cut one has none.
write_stamp() { printf '%s\nextra=%s\n%s\n' "$root" "$1" "$2" >"$stamp"; }

# bootstrap EXTRA: ensure_venv, one at a time. Exits 2 where there is something to write and no way.
bootstrap() {
  if [ ! -w "$root" ]; then
    if is_done "$1"; then return; fi
    say "cannot write to $root, where .venv is to be made"
    printf '\nhint: copy the checkout and run the copy: cp -r %q ~/kept && ~/kept/scripts/%s\n' \
      "$root" "${0##*/}" >&2
    exit 2
  fi
  if command -v flock >/dev/null; then
    (
      flock 9
      ensure_venv "$1" 9>&-
    ) 9>"$root/.venv.lock"
  else
    ensure_venv "$1"
  fi
}
