# shellcheck shell=bash
# Sourced by the scripts that boot the guest, in the checkout's root: what their command lines have in common.
#   [--suite NAME] [FOLDER_WITH_PACKAGES [FOLDER_WITH_PROGRAMS]]
# The guest is of that Debian release (default: ${PTTD_VM_SUITE}, or else the host's). The packages are those of `make deb`, by default
# .build-deb, or .build-deb-NAME for another release; test programs, which no package has, come from .build/release or .build-NAME/release.
# Packages of the host's release install in a later one's guest as well: the libraries that the guest's release does not have any more are
# installed with them, as packages of the host's release.

# choose PACKAGES PROGRAMS ARGUMENT...: sets `packages` to the files of those packages, `programs` to the folder that has those programs, and
# PTTD_VM_SUITE for build-image.
choose() {
  local wanted=$1 tools=$2 name folder file suffix='' in_root='' scratch=; shift 2
  if [ "${1-}" = --suite ]; then export PTTD_VM_SUITE=${2:?--suite needs a name}; shift 2; fi
  own=$(. /etc/os-release && echo "$VERSION_CODENAME")
  if [ "${PTTD_VM_SUITE:-$own}" != "$own" ]; then
    suffix=-$PTTD_VM_SUITE in_root="Tests/Debian/in-root $PTTD_VM_SUITE " scratch=" SCRATCH=.build-$PTTD_VM_SUITE DEBS=.build-deb-$PTTD_VM_SUITE"
  fi
  folder=${1:-.build-deb$suffix} programs=${2:-.build$suffix/release} packages=()
  for name in $wanted; do
    file=$(compgen -G "$folder/${name}_*.deb" | head -1)
    [ -n "$file" ] || { echo "$0: no package $name in $folder; run \`${in_root}make deb$scratch\` first" >&2; exit 1; }
    packages+=("$file")
    if [ "$programs/$name" -nt "$file" ]; then echo "$0: note: $file is older than $programs/$name; \`make deb\` makes it anew" >&2; fi
  done
  for name in $tools; do
    [ -x "$programs/$name" ] || { echo "$0: no $programs/$name; run \`${in_root}make test-programs$scratch\` first" >&2; exit 1; }
  done
}
# copy_packages FOLDER IMAGE: and the packages with what they depend on where the image has none of that name.
copy_packages() {
  local file name
  mkdir -p "$1" && cp "${packages[@]}" "$1/" || return 1
  for file in "${packages[@]}"; do
    while read -r name; do
      if grep -qxF "$name" "$2/packages" || compgen -G "$1/${name}_*.deb" >/dev/null; then continue; fi
      (cd "$1" && apt-get -qq -o APT::Sandbox::User=root download "$name") || { echo "$0: no package $name in $own" >&2; return 1; }
    done < <(dpkg-deb -f "$file" Depends | tr ',' '\n' | sed 's/^ *//; s/[ (|].*//')
  done
}
# copy_programs PROGRAMS FOLDER: stripped, for the guest loads them faster then.
copy_programs() {
  local name
  mkdir -p "$2"
  for name in $1; do strip -o "$2/$name" "$programs/$name" 2>/dev/null || cp "$programs/$name" "$2/$name" || return 1; done
}
