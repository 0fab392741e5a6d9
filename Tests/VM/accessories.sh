#!/bin/bash
# The accessories' proof, in the guest: every kind of talk button against the shipped pttd.service, with real BlueZ, kernel and udev.
# Started by Tests/VM/run-accessories; accessories.py is the scenario, this prepares the machine as a package and an installer would.
harness=/host/Tests/VM
. "$harness/guest-functions.sh"
out=/ctl/out

install_packages || exit 1
# The log goes to a file, in which each line has its time.
mkdir -p /etc/systemd/system/pttd.service.d
cat > /etc/systemd/system/pttd.service.d/test.conf <<UNIT
[Service]
ExecStart=
ExecStart=/usr/bin/pttd --log-level debug
StandardOutput=append:/run/pttd.log
StandardError=append:/run/pttd.log
UNIT

# --- what an installer writes: rules for four input devices, and a profile for a remote whose play key is to be held
cat > /etc/udev/rules.d/70-pttd.rules <<'RULES'
ACTION=="remove", GOTO="site_end"
SUBSYSTEM!="input", GOTO="site_end"
KERNEL!="event*", GOTO="site_end"
ATTRS{name}=="*Headset Jack", TAG+="pttd", ENV{PTTD_ACCESSORY}="wired-headset", ENV{PTTD_PROFILE}="headset-play-pause"
ATTRS{id/vendor}=="1209", ATTRS{id/product}=="0002", TAG+="pttd", ENV{PTTD_ACCESSORY}="foot-switch", ENV{PTTD_PROFILE}="key-hold", ENV{PTTD_GRAB}="1"
ATTRS{name}=="Media Remote*", TAG+="pttd", ENV{PTTD_ACCESSORY}="hid-remote", ENV{PTTD_PROFILE}="remote"
ATTRS{name}=="* (AVRCP)", TAG+="pttd", ENV{PTTD_ACCESSORY}="avrcp", ENV{PTTD_PROFILE}="headset-play-pause"
LABEL="site_end"
RULES
udevadm control --reload
mkdir -p /etc/pttd/profiles.d
cat > /etc/pttd/profiles.d/remote.toml <<'PROFILE'
id = "remote"
title = "A remote control, its play key held to talk"
confidence = "code"
experimental = true
sources = ["the remote itself, tried with evtest"]
transport = "input"
explicit = true

[[input]]
decode = "keys"

[[input.control]]
name = "ptt"
keys = ["KEY_PLAYPAUSE"]
PROFILE
cat > /etc/pttd/pttd.toml <<'TOML'
[daemon]
name = "Accessories"

[audio]
microphone = "plughw:Loopback,1,0"
speaker = "plughw:Loopback,0,1"
# Nobody speaks here.
microphone-watch = false
tones = false
TOML
systemd-tmpfiles --create /usr/lib/tmpfiles.d/pttd.conf
check "the profile is right" pttctl profile check /etc/pttd/profiles.d/remote.toml
# A machine that can be told to sleep, and does nothing then: real logind, real PrepareForSleep.
mkdir -p /etc/systemd/system/systemd-suspend.service.d
printf '[Service]\nExecStart=\nExecStart=/bin/sleep 1\n' > /etc/systemd/system/systemd-suspend.service.d/test.conf
systemctl daemon-reload; systemctl start systemd-logind || failed "systemd-logind"

# --- devices; who opens an input device is noted by the kernel: /dev/input/eventN has the number 64 + N
modprobe snd-aloop index=0 pcm_substreams=4 || failed "snd-aloop"
modprobe -a uinput evdev
mount -t tracefs tracefs /sys/kernel/tracing
echo 'p:opened evdev:evdev_open device=+76(%di):u32' > /sys/kernel/tracing/kprobe_events &&
  echo 1 > /sys/kernel/tracing/events/kprobes/opened/enable || failed "a probe of evdev_open"
bluetoothd_waits
radio_on ptt-z aina,secure anytone b01 itag unknown hid-remote headset aina-v1 wired-headset foot-switch keyboard ||
  { failed "the virtual devices"; exit 1; }
bluetoothd_begins
two_adapters() { [ "$(bluetoothctl list | grep -c Controller)" = 2 ]; }
check "bluetoothd has both adapters" until_true 60 two_adapters
: > /run/pttd.log; chmod 644 /run/pttd.log
check "pttd.service starts" systemctl start pttd || { tail -20 /run/pttd.log; exit 1; }

python3 "$harness/accessories.py" $out || failures=$((failures + 1))

# --- what came out
stopped=$(journalctl -k -o cat | grep -A 20 'kernel BUG')
[ -z "$stopped" ] || failed "the guest's kernel has stopped: $(grep -m1 -i bluetooth <<<"$stopped")"
cp /run/pttd.log $out/pttd.log; journalctl -u bluetooth -o cat > $out/bluetoothd.log
say "$failures failed"
# Linux 6.1 may stop in its own Bluetooth code when links end (list_debug.c below hci_chan_del): that says nothing of the programs.
[ -z "$stopped" ] || exit 77
exit $((failures > 0))
