# shellcheck shell=bash disable=SC2154     # `harness` is set by who sources this
# Sourced after guest-functions.sh by scripts about headsets with sound: PipeWire, BlueALSA, recordings that are judged on the host.
out=/ctl/out
export XDG_RUNTIME_DIR=/run/user/0 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/0/bus
two_adapters() { [ "$(bluetoothctl list | grep -c Controller)" = 2 ]; }
pair() { python3 "$harness/worn_pair.py" "$@"; }

# pipewire_on: what a desktop's session runs. Without a seat WirePlumber would leave Bluetooth alone.
pipewire_on() {
  mkdir -p /etc/wireplumber/wireplumber.conf.d $XDG_RUNTIME_DIR; chmod 700 $XDG_RUNTIME_DIR
  printf '%s\n' 'wireplumber.profiles = { main = { monitor.bluez.seat-monitoring = disabled } }' \
    'monitor.bluez.properties = { bluez5.hfphsp-backend = "native" }' > /etc/wireplumber/wireplumber.conf.d/guest.conf
  dbus-daemon --session --nofork --nopidfile --address=$DBUS_SESSION_BUS_ADDRESS >>$out/session-bus.log 2>&1 & session=$!
  until_true 10 test -S $XDG_RUNTIME_DIR/bus || return 1
  pipewire >>$out/pipewire.log 2>&1 & session+=" $!"
  until_true 20 test -S $XDG_RUNTIME_DIR/pipewire-0 || return 1
  wireplumber >>$out/wireplumber.log 2>&1 & session+=" $!"
  pipewire-pulse >>$out/pipewire-pulse.log 2>&1 & session+=" $!"
  until_true 20 test -S $XDG_RUNTIME_DIR/pulse/native || return 1
  # WirePlumber is the audio gateway when it has its name on the bus.
  until_true 20 busctl --user status org.pipewire.Telephony
}
pipewire_off() { for process in $session; do kill "$process"; done; for process in $session; do wait "$process"; done 2>/dev/null; }
# The name of a headset's source has its address with underscores, or with colons where it can play music as well (WirePlumber's loopback).
microphone() { pactl list sources short | awk '$2 ~ /^bluez_input/ {print $2; exit}'; }
speaker() { pactl list sinks short | awk '$2 ~ /^bluez_output/ {print $2; exit}'; }
profile_is() { pactl list cards | grep -qF "Active Profile: $1"; }
microphone_there() { [ -n "$(microphone)" ]; }

# bluealsa_on: as the audio gateway, and for music
bluealsa_on() {
  bluealsa -p hfp-ag -p a2dp-source >>$out/bluealsa.log 2>&1 & bluealsa=$!
  until_true 20 busctl status org.bluealsa
}
bluealsa_off() { kill "$bluealsa"; wait "$bluealsa" 2>/dev/null; }

# sco NAME STATE: whether the headset's link for sound is up (1) or not (0)
sco() { [ "$(field sco "$(vbt "$1" sco)")" = "$2" ]; }
links_are() { [ "$(field links "$(vbt worn sco)")" = "$1" ]; }
# record DEVICE FILE SILENCE [SECONDS]: 3 s of it; at most SILENCE ms may be zeros before the noise that the headset says, and SECONDS have
# to be that noise
record() { timeout 20 arecord -q -D "$1" -f S16_LE -r 48000 -c 1 -d 3 "$out/$2" && echo "$2 1 $3 ${4:-2.2}" >> $out/recordings; }
# play DEVICE FILE: three seconds of noise; FILE is what the headset heard
play() {
  vbt worn heard /root/before.wav >/dev/null
  timeout 20 aplay -q -D "$1" /root/machine.wav || return 1
  sleep 1; vbt worn heard "$out/$2" && echo "$2 2 2000 2.2" >> $out/recordings
}
