# shellcheck shell=bash disable=SC2154     # `harness` is set by who sources this
# Sourced by the scripts that run in the guest: steps that count, waiting with a limit, the virtual radio.
failures=0
# There it is dbus-broker that is started as dbus-daemon.
[ "$VM_BUS" != dbus-broker ] || export PATH="${harness%/*}/DBusBroker:$PATH"
uptime_ms() { awk '{printf "%d", $1 * 1000}' /proc/uptime; }
monotonic_ns() { python3 -c 'import time; print(time.clock_gettime_ns(time.CLOCK_MONOTONIC))'; }
say() { printf '[%7.2f] %s\n' "$(cut -d' ' -f1 /proc/uptime)" "$*"; }
passed() { say "ok   $*"; }
failed() { say "FAIL $*"; failures=$((failures + 1)); }
# check DESCRIPTION COMMAND...: the command's success is the check
check() { local what=$1; shift; if "$@" >/tmp/check.out 2>&1; then passed "$what"; else failed "$what"; sed 's/^/          /' /tmp/check.out | tail -20; return 1; fi; }
# until_true SECONDS COMMAND...: polls the command until it succeeds; fails when the time is over
until_true() {
  local end=$(($(uptime_ms) + $1 * 1000)); shift
  while ! "$@" >/dev/null 2>&1; do [ "$(uptime_ms)" -lt "$end" ] || return 1; sleep 0.1; done
}
field() { sed -n "s/.*\b$1=\([^ ]*\).*/\1/p" <<<"$2"; }      # field t "ok t=123 …" -> 123

# radio_on BUTTON...: the virtual controller and buttons; their log goes to /ctl/out/radio.log
radio_on() {
  modprobe -a bluetooth hci_vhci uhid || return 1             # bluetooth before bluetooth.service, or that is skipped
  mkdir -p /run/vbt; rm -f /run/vbt.sock
  python3 "$harness/virtual_bt.py" "$@" >>/ctl/out/radio.log 2>&1 & radio=$!
  until_true 180 test -S /run/vbt.sock || { tail /ctl/out/radio.log; return 1; }
}
# radio_off: the adapter vanishes from the kernel
radio_off() { kill "$radio"; wait "$radio" 2>/dev/null; rm -f /run/vbt.sock; }
vbt() { "$harness/vbt" "$@"; }
# udev starts bluetoothd with the first controller; virtual classic devices need theirs before it.
bluetoothd_waits() { systemctl mask --runtime bluetooth.service >/dev/null 2>&1; }
bluetoothd_begins() { systemctl unmask --runtime bluetooth.service >/dev/null 2>&1; systemctl start bluetooth; }
adapter_there() { bluetoothctl list | grep -q Controller; }

# install_packages: the Debian packages that the host has put into $PACKAGES, as on any machine.
install_packages() {
  check "the system bus is $VM_BUS" pgrep -x -P 1 "$VM_BUS.*"
  local begun; begun=$(uptime_ms)
  check "dpkg installs the packages" dpkg --install "${PACKAGES:?}"/*.deb || return 1
  say "installed in $(($(uptime_ms) - begun)) ms: $(cd "$PACKAGES" && echo *.deb)"
  for unit in pttd pttrelay; do
    if systemctl is-active --quiet $unit; then failed "$unit runs before anybody has started it"; fi
  done
  check_units
}
check_units() {
  # shellcheck disable=SC2046     # several words
  check "the units are correct" systemd-analyze verify --man=no $(cd /usr/lib/systemd/system && ls pttd.service pttrelay.service pttd-pan.service 2>/dev/null)
  check "the user unit is correct" env XDG_RUNTIME_DIR=/run systemd-analyze --user verify --man=no /usr/lib/systemd/user/pttd.service
}
