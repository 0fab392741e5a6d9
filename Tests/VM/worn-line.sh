#!/bin/bash
# The whole line with a worn headset: a Bluetooth LE button, a headset's microphone and speaker over a link for sound (SCO), pttd, a relay
# and a listener, in the guest. First PipeWire with WirePlumber has the headset, then BlueALSA. Started by Tests/VM/run-worn on the host,
# which then judges what was heard (judge_worn_line.py).
harness=/host/Tests/VM
. "$harness/guest-functions.sh"
. "$harness/worn-functions.sh"

install_packages || exit 1
# The desk: what stands in for the headset, and the listener's ear. The headset says other words of the same speech.
modprobe snd-aloop enable=1 index=0 id=Loopback pcm_substreams=4 || failed "snd-aloop"
cp /host/recordings/vm/speech.wav /root/
python3 "$harness/loopback.py" play plughw:CARD=Loopback,DEV=0,SUBDEV=0 /root/speech.wav "$out/mic.wav.clock" 2>>"$out/desk.log" & desk=$!
python3 "$harness/loopback.py" record plughw:CARD=Loopback,DEV=1,SUBDEV=2 /root/ear.wav 2>>"$out/ear.log" & ear=$!

bluetoothd_waits
radio_on ptt-z worn=speaker-mic music=music-headset || { failed "the virtual devices"; exit 1; }
bluetoothd_begins
check "bluetoothd has both adapters" until_true 60 two_adapters
status() { pttctl status --json --bus "unix:path=/run/$1.bus"; }
# truth about `pttctl status --json`: c is the channel, s all of it
is() { status "$1" | python3 -c 'import json, sys
s = json.load(sys.stdin); c = s["channels"][0]; a = s["accessories"]
sys.exit(not eval(sys.argv[1]))' "$2"; }
quiet='c["serviceStatus"] == "ready" and not c["transmitting"] and not c["activeRemoteParticipant"]'
both_quiet() { is talker "$quiet" && is listener "$quiet"; }
settle() { check "$1: nothing stuck, both idle" until_true 15 both_quiet; }
sound_is() { is talker "any(x['sound'].startswith('$1') for x in a)"; }
# I1, as the sound server sees it.
nobody_records() { [ "$(pactl list source-outputs short | grep -vc bluez_capture_internal)" = 0 ]; }
logged() { grep -q "$1" "$out/talker.log"; }

for name in talker listener; do
  dbus-daemon --session --nofork --nopidfile "--address=unix:path=/run/$name.bus" >/dev/null 2>&1 &
  until_true 10 test -S /run/$name.bus || failed "a bus"
  mkdir -p /root/$name-state
done
echo "PTTRELAY_OPTIONS=--listen 127.0.0.1:4433 --channel Field" > /etc/default/pttrelay; systemctl start pttrelay
link_printed() { link=$(journalctl -u pttrelay -o cat | grep -o 'ptt://[^ ]*' | tail -1); [ -n "$link" ]; }
check "the relay prints an invitation" until_true 15 link_printed || exit 1
# settings NAME REST
settings() { printf '[daemon]\nname = "%s"\nbus = "unix:path=/run/%s.bus"\n\n[channel]\nlink = "%s"\n\n[accessories]\nautomatic = false\n\n%s\n' \
  "$1" "$1" "$link" "$2" > "/root/$1.toml"; }
button=C4:00:00:00:FF:E0        # of ptt-z
# wears NAME [LINES_OF_AUDIO]: the button's sound is this headset's
wears() {
  settings talker "[accessory.vest]
address = \"$button\"
sound = \"$(field address "$(vbt "$1" state)")\"

[audio]
fallback-microphone = \"plughw:CARD=Loopback,DEV=1,SUBDEV=0\"
fallback-speaker = \"plughw:CARD=Loopback,DEV=0,SUBDEV=1\"
microphone = \"accessory\"
speaker = \"accessory\"
${2:-}"
}
start() { exec pttd --config "/root/$1.toml" --state "/root/$1-state" --log-level debug >/dev/null 2>>"$out/$1.log"; }
begin_talker() { start talker & talker=$!; check "$1: the button is ready" until_true 60 is talker 'a and a[0]["ready"] and c["serviceStatus"] == "ready"'; }
end_talker() { kill $talker; wait $talker; }
settings listener '[audio]
microphone = "wav:/root/reply.wav"
speaker = "plughw:CARD=Loopback,DEV=0,SUBDEV=2"'
python3 "$harness/worn_sound.py" noise /root/reply.wav 6 2
start listener & listener=$!

# talk SECONDS: holds the button for so long; sets `pressed` and `released`
talk() { press; sleep "$1"; let_go; }
press() { pressed=$(field t "$(vbt ptt-z press)"); }
let_go() { released=$(field t "$(vbt ptt-z release)"); }
# heard NAME MOUTH [FROM [LATE]]: what this mouth said from FROM (the press) to the release has to be heard; LATE ms of it may be missing
heard() { printf '{"name": "%s: %s", "mouth": "%s", "press": %d, "release": %d, "late": %d, "goes_on": %d}\n' \
  "$server" "$1" "$2" "${3:-$pressed}" "$released" "${4:-500}" $((${3:-$pressed} != pressed)) >> "$out/bursts"; }
# speaks HEADSET: it says the speech from now on
speaks() { echo "0 $(field begun "$(vbt "$1" speak /root/speech.wav)")" > "$out/$1.$server.clock"; }
link_goes() { check "$server: the link for sound goes" until_true 10 sco worn 0; }

# a_day HEADSET: presses with it, whichever server has it
a_day() {
  check "$server: status shows its sound" until_true 30 sound_is "microphone and speaker" || status talker
  check "$server: no link for sound while nobody talks" until_true 10 sco worn 0
  sleep 2; talk 3; heard "first press" worn "$pressed" 1200; settle "$server: first press"
  sleep 2; talk 3; heard "second press" worn; settle "$server: second press"
  link_goes
  vbt worn delay 900 >/dev/null; sleep 2; talk 4; vbt worn delay 0 >/dev/null
  heard "a link that comes up late" worn "$pressed" 1500; settle "$server: a late link"
  link_goes

  # The listener answers, and the headset hears it.
  vbt worn heard /root/before.wav >/dev/null
  pttctl talk --for 3 --bus unix:path=/run/listener.bus >/dev/null; settle "$server: an answer"; sleep 1
  vbt worn heard "$out/$server-answer.wav" >/dev/null; echo "$server-answer.wav" >> "$out/answers"
  link_goes

  # The headset closes its link while somebody talks.
  press; sleep 2; closed=$(monotonic_ns); vbt worn sco close >/dev/null; sleep 3; let_go
  heard "link closed by the headset" desk $((closed + 700000000)); settle "$server: link closed by the headset"
  check "$server: status says that it gave no sound" is talker '"gives no sound" in s["microphoneProblem"] or "moves no samples" in s["microphoneProblem"]' || status talker
  sleep 2; talk 3; settle "$server: on trial"
  sleep 2; talk 3; heard "after the link was closed" worn; settle "$server: after the link was closed"
  check "$server: nothing is wrong any more" is talker 'not s["microphoneProblem"]' || status talker

  # It goes altogether.
  press; sleep 2; dropped=$(monotonic_ns); vbt worn drop >/dev/null; sleep 3; let_go
  heard "headset gone" desk $((dropped + 700000000)); settle "$server: headset gone"
  check "$server: status shows that it is away" until_true 5 sound_is "sound away" || status talker
  sleep 2; talk 3; heard "press without the headset" desk; settle "$server: press without the headset"
  check "$server: status says what is used" is talker '"is away" in s["microphoneProblem"] and "is used" in s["microphoneProblem"]' || status talker
}

# --- PipeWire
server=PipeWire
pipewire_on || { failed "PipeWire"; exit 1; }
check "the speaker-microphone is paired" pair "Virtual Speaker Mic" || exit 1
check "PipeWire has its microphone" until_true 20 microphone_there
speaks worn
wears worn; begin_talker $server
a_day
check "nobody records" nobody_records
check "the device opens its line again" vbt worn dial
check "its microphone is back" until_true 20 microphone_there
sleep 2; talk 3; heard "headset back" worn; settle "$server: headset back"
link_goes; check "nobody records outside of a press" nobody_records
pttctl accessory test --sound --seconds 8 vest --bus unix:path=/run/talker.bus > "$out/test-sound.txt" 2>&1 & test=$!
sleep 3; talk 2; settle "a test of its sound"
check "the test of its sound succeeds" wait $test
check "and says when it was heard" grep -q "heard [0-9]* ms after the last press" "$out/test-sound.txt" || cat "$out/test-sound.txt"
end_talker

# A kept link is up while nobody talks, without a recording.
wears worn 'bluetooth-link = "kept"'; begin_talker "$server, kept"
check "the kept link is up" until_true 20 sco worn 1
check "nobody records meanwhile" nobody_records
sleep 8; check "and stays up" sco worn 1
links=$(field links "$(vbt worn sco)")
talk 3; heard "kept link" worn; settle "$server: kept link"
check "it was no new link" links_are "$links"
end_talker; link_goes
vbt worn drop >/dev/null

# A headset that plays music, taken to the hands-free profile and back.
check "the music headset is paired" pair "Virtual Music Headset" || exit 1
check "PipeWire has its microphone" until_true 20 microphone_there
check "it is there for music" until_true 10 profile_is a2dp-sink
speaks music
wears music; begin_talker "$server, music"
check "$server: status shows its sound" until_true 30 sound_is "microphone and speaker" || status talker
sleep 2; talk 4; heard "from music to speech" music "$pressed" 1800; settle "$server: from music to speech"
check "it is back for music" until_true 15 profile_is a2dp-sink
check "nobody records" nobody_records
end_talker
vbt music drop >/dev/null
pipewire_off

# --- BlueALSA
server=BlueALSA
bluealsa_on || { failed "BlueALSA"; exit 1; }
check "the device opens its line to the machine" vbt worn dial
check "BlueALSA has its microphone" until_true 20 eval 'bluealsa-cli list-pcms | grep -q "hfpag/source"'
speaks worn
wears worn; begin_talker $server
a_day
end_talker
bluealsa_off

sleep 1; kill $desk $ear $listener; wait $desk $ear 2>/dev/null
cp /root/ear.wav* "$out/"
say "$failures failed"
exit $((failures > 0))
