#!/bin/bash
# The main proof, in the guest: real kernel Bluetooth, real bluetoothd, virtual LE buttons, snd-aloop, systemd; a talker, a relay
# and a listener. Started by Tests/VM/run on the host, which then judges what was recorded (judge.py).
harness=/host/Tests/VM
. "$harness/guest-functions.sh"
out=/ctl/out

# ------------------------------------------------------------ what depends on the programs' command lines and settings
channel=Field
relay_options="--listen 127.0.0.1:4433 --channel $channel --log-level debug"
talker_arguments="--log-level debug"
listener_bus=unix:path=/run/listener.bus
listener_arguments="--config /root/listener.toml --state /root/listener-state --log-level debug"
talker_settings() { cat <<TOML
[daemon]
name = "Talker"

[channel]
link = "$1"

[audio]
microphone = "plughw:Loopback,1,0"
speaker = "plughw:Loopback,0,1"

[accessory.ptt-z]
name = "PTT-Z"

[accessory.aina]
name = "APTT*"

[accessory.anytone]
name = "ELET-PTT*"

[accessory.td-q2l]
address = "${address[td-q2l]}"

[accessory.microbit]
name = "BBC micro:bit*"
TOML
}
# listener_settings LINK [SPEAKER]
listener_settings() { cat <<TOML
[daemon]
name = "Listener"
bus = "$listener_bus"

[channel]
link = "$1"

[accessories]
automatic = false

[audio]
microphone = "plughw:Loopback,1,3"
speaker = "${2:-plughw:Loopback,0,2}"
TOML
}
status() { if [ "$1" = talker ]; then pttctl status --json; else pttctl status --json --bus "$listener_bus"; fi; }
# truth about `pttctl status --json`: c is the channel, a says of an accessory's address whether its presses arrive
is() { status "$1" | python3 -c 'import json, sys
s = json.load(sys.stdin); c = s["channels"][0]; a = {x["address"]: x["ready"] for x in s["accessories"]}
sys.exit(not eval(sys.argv[1]))' "$2"; }
ready='c["serviceStatus"] == "ready"'
idle="$ready"' and not c["transmitting"] and not c["activeRemoteParticipant"]'
# button (virtual_bt.py) -> its address
declare -A address=([ptt-z]=C4:00:00:00:FF:E0 [aina]=C4:00:00:00:FA:CE [anytone]=C4:00:00:60:B0:2A
  [td-q2l]=C4:00:00:00:89:A8 [microbit]=C4:00:00:00:E9:5D)
buttons=(ptt-z aina anytone td-q2l microbit)
# --------------------------------------------------------------------------------------------------------------------

export MOUTH=/root/speech.wav MOUTH_CLOCK=$out/mic.wav.clock BURSTS=$out/bursts
talk() { check "$1: press, hold, release" python3 "$harness/talk.py" "$@"; }
both() { is talker "$1" && is listener "$1"; }
both_idle() { check "$1: nothing stuck, both idle" until_true "${2:-10}" both "$idle"; }
button_ready() { check "$1: the button is ready" until_true "${3:-40}" is talker "a['${address[$2]}']"; }

say "systemd $(systemctl is-system-running), BlueZ $(/usr/libexec/bluetooth/bluetoothd --version), $VM_ACCELERATOR"

install_packages || exit 1
mkdir -p /etc/systemd/system/pttd.service.d
printf '[Service]\nExecStart=\nExecStart=/usr/bin/pttd %s\n' "$talker_arguments" > /etc/systemd/system/pttd.service.d/test.conf
echo "PTTRELAY_OPTIONS=$relay_options" > /etc/default/pttrelay
systemctl daemon-reload

# --- sound: mouth -> Loopback,0,0 | 1,0 -> talker …  listener -> 0,2 | 1,2 -> ear
modprobe snd-aloop index=0 pcm_substreams=4 || { failed "snd-aloop"; exit 1; }
cp /host/recordings/vm/speech.wav{,.loud} /root/
python3 "$harness/loopback.py" play plughw:Loopback,0,0 $MOUTH $MOUTH_CLOCK 2>>$out/mouth.log & mouth=$!
python3 "$harness/loopback.py" record plughw:Loopback,1,2 /root/ear.wav 2>>$out/ear.log & ear=$!

# --- radio, bluetoothd, relay, listener, talker
radio_on "${buttons[@]}" || { failed "the virtual radio"; exit 1; }
systemctl start bluetooth; check "bluetoothd has the virtual adapter" until_true 20 adapter_there
systemctl start pttrelay
link_printed() { link=$(journalctl -u pttrelay -o cat | grep -o 'ptt://[^ ]*' | tail -1); [ -n "$link" ]; }
check "the relay prints an invitation" until_true 15 link_printed || { journalctl -u pttrelay -o cat | tail; exit 1; }
talker_settings "$link" > /etc/pttd/pttd.toml; systemd-tmpfiles --create /usr/lib/tmpfiles.d/pttd.conf
listener_settings "$link" > /root/listener.toml
dbus-daemon --session --nofork --nopidfile --address=$listener_bus >/dev/null 2>&1 & bus=$!
until_true 10 test -S /run/listener.bus
mkdir -p /root/listener-state
# shellcheck disable=SC2086     # several words
start_listener() { pttd $listener_arguments >/dev/null 2>>"$out/listener.log" & listener=$!; }
start_listener
begun=$(uptime_ms)
check "pttd.service starts" systemctl start pttd || journalctl -u pttd -o cat | tail -20
say "pttd.service was up after $(($(uptime_ms) - begun)) ms; $(systemd-analyze security pttd.service --no-pager 2>/dev/null | tail -1 | sed 's/^[^A-Za-z]*//')"
say "pttrelay.service: $(systemd-analyze security pttrelay.service --no-pager 2>/dev/null | tail -1 | sed 's/^[^A-Za-z]*//')"
check "talker and listener are in the channel" until_true 30 both "$ready"
button_ready "found by a scan" ptt-z 60

# --- who may use org.pttd on the system bus
useradd -M -G pttd worker; useradd -M stranger
as() { setpriv --reuid="$1" --regid="$1" --init-groups "${@:2}"; }
check "a member of the group pttd may use it" as worker pttctl status
if as stranger pttctl status >/dev/null 2>&1; then failed "a stranger may use it"; else passed "a stranger is refused"; fi

# --- the line
for n in 1 2 3; do talk "press $n" ptt-z 3 release; both_idle "press $n"; done

talk "vanish while held" ptt-z 2.5 vanish; both_idle "vanish while held"
vbt ptt-z adv on >/dev/null; button_ready "back in reach" ptt-z
talk "after vanish" ptt-z 2 release; both_idle "after vanish"

talk "drop while held" ptt-z 2.5 drop; both_idle "drop while held"
button_ready "reconnected" ptt-z
talk "after drop" ptt-z 2 release; both_idle "after drop"

check "bluetoothd restarts" systemctl restart bluetooth
until_true 5 is talker "not a['${address[ptt-z]}']"      # it notices, unless it was too quick to see
button_ready "after bluetoothd restarted" ptt-z
talk "after bluetoothd restarted" ptt-z 2 release; both_idle "after bluetoothd restarted"

talk "relay killed while held" ptt-z 2.5 "systemctl kill -s KILL pttrelay"
check "the relay comes back by itself" until_true 15 systemctl is-active pttrelay
both_idle "relay killed while held" 90
talk "after the relay came back" ptt-z 2 release; both_idle "after the relay came back"

check "pttd is killed" systemctl kill -s KILL pttd
sleep 1; check "pttd comes back by itself" until_true 15 is talker "$ready"
button_ready "after pttd came back" ptt-z
talk "after pttd came back" ptt-z 2 release; both_idle "after pttd came back"

radio_off; sleep 1; radio_on "${buttons[@]}" || failed "the virtual radio again"
button_ready "after the adapter came back" ptt-z 60
talk "after the adapter came back" ptt-z 2 release; both_idle "after the adapter came back"

for button in aina anytone td-q2l microbit; do
  button_ready "$button" $button 60 && talk "$button" $button 1.5 release && both_idle "$button"
done

# --- other ways to the card: ALSA's mixer, which the listener would share with other programs; and the cards without any conversion
cat > /root/.asoundrc <<ALSA
pcm.mixed { type plug slave.pcm { type dmix ipc_key 4711 slave {
  pcm "hw:Loopback,0,2" format S16_LE rate 48000 channels 1 period_size 480 buffer_size 1920 } } }
ALSA
change_speaker() { kill $listener; wait $listener; listener_settings "$link" "$1" > /root/listener.toml; start_listener
  check "listener plays through $1" until_true 30 is listener "$ready"; }
change_speaker mixed; talk "dmix" ptt-z 2 release; both_idle "dmix"
check "the mixer was in use" grep -q "speaker prepared.*mixed" $out/listener.log
change_speaker hw:Loopback,0,2
sed -i 's/plughw:/hw:/' /etc/pttd/pttd.toml; check "pttd starts with the cards themselves" systemctl restart pttd
button_ready "with the cards themselves" ptt-z; talk "plain snd-aloop" ptt-z 2 release; both_idle "plain snd-aloop"

# --- what came out
sleep 1; kill $mouth $ear; wait $mouth $ear 2>/dev/null
cp /root/ear.wav* $out/
status talker > $out/talker-status.json; status listener > $out/listener-status.json
kill $listener $bus; systemctl stop pttd pttrelay
check "pttd.service stopped cleanly" test "$(systemctl show -P Result pttd)" = success
journalctl -u pttd -o cat > $out/talker.log; journalctl -u pttrelay -o cat > $out/relay.log
journalctl -u bluetooth -o cat > $out/bluetoothd.log
say "$failures failed"
exit $((failures > 0))
