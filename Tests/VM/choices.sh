# shellcheck shell=bash
# Sourced by the scripts that boot the guest, in the checkout's root: what their command lines have in common.
#   [--suite NAME] [FOLDER_WITH_PROGRAMS]
# The guest is of that Debian release (default: ${PTTD_VM_SUITE}, or else the host's). Programs are those that are built for it:
# `Tests/Debian/in-root NAME make release test-programs SCRATCH=.build-NAME` does, and that folder is the default then. Those of the
# host's own release run in a later one's guest as well, which gets the libraries that it does not have from the host.

# choose NAMES ARGUMENT...: sets `programs` to the folder, which has to hold those programs, and PTTD_VM_SUITE for build-image.
choose() {
  local names=$1 own name; shift
  if [ "${1-}" = --suite ]; then export PTTD_VM_SUITE=${2:?--suite needs a name}; shift 2; fi
  own=$(. /etc/os-release && echo "$VERSION_CODENAME")
  local scratch=.build make="make release test-programs"
  if [ "${PTTD_VM_SUITE:-$own}" != "$own" ]; then
    scratch=.build-$PTTD_VM_SUITE make="Tests/Debian/in-root $PTTD_VM_SUITE make release test-programs SCRATCH=.build-$PTTD_VM_SUITE"
  fi
  programs=${1:-$scratch/release}
  for name in $names; do
    [ -x "$programs/$name" ] || { echo "$0: no $programs/$name; run \`$make\` first" >&2; exit 1; }
  done
}
# copy_programs NAMES FOLDER IMAGE: stripped, for the guest loads them faster then; and in `libraries` what the image lacks of theirs.
copy_programs() {
  local name library path
  mkdir -p "$2/libraries"
  for name in $1; do
    strip -o "$2/$name" "$programs/$name" 2>/dev/null || cp "$programs/$name" "$2/$name"
    while read -r library; do
      path=$(ldconfig -p | awk -v name="$library" '$1 == name { print $NF; exit }')
      grep -qxF "$library" "$3/libraries" || [ -z "$path" ] || cp -L "$path" "$2/libraries/"
    done < <(readelf -d "$programs/$name" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p')
  done
}
