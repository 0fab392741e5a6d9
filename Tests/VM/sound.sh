#!/bin/bash
# Sound cards that are pulled out and plugged in while somebody talks, in the guest: a USB speaker of QEMU's, and a microphone whose driver
# is unbound (snd-aloop). Started by Tests/VM/run-sound on the host, which then judges what was heard (judge_sound.py).
harness=/host/Tests/VM
. "$harness/guest-functions.sh"
out=/ctl/out

install_packages || exit 1
# Mouth and ear are at the card Loopback; Worn is the microphone that goes.
modprobe snd-aloop enable=1,1 index=0,1 id=Loopback,Worn pcm_substreams=4,4 || failed "snd-aloop"
modprobe -a xhci-pci snd-usb-audio || failed "the USB drivers"
mouth=plughw:CARD=Loopback,DEV=0,SUBDEV=0 worn_mouth=plughw:CARD=Worn,DEV=0,SUBDEV=0
cp /host/recordings/vm/speech.wav /root/
python3 "$harness/loopback.py" play $mouth /root/speech.wav "$out/mic.wav.clock" 2>>"$out/mouth.log" & mouths=$!
worn_speaks() { python3 "$harness/loopback.py" play $worn_mouth /root/speech.wav /root/worn.clock 2>>"$out/worn.log" & }
worn_speaks
python3 "$harness/loopback.py" record plughw:CARD=Loopback,DEV=1,SUBDEV=2 /root/ear.wav 2>>"$out/ear.log" & ear=$!

monitor() { echo "$*" > /dev/virtio-ports/monitor; }
plug() { monitor device_add usb-audio,id=headset,audiodev=none; check "the USB card is plugged in" until_true 20 test -e /proc/asound/Audio/pcm0p; }
pull() { monitor device_del headset; }
worn() { echo snd_aloop.1 > "/sys/bus/platform/drivers/snd_aloop/$1"; }
runs() { grep -q RUNNING "/proc/asound/$1/sub0/status"; }
gone() { [ ! -e "/proc/asound/$1" ]; }
status() { pttctl status --json --bus "unix:path=/run/$1.bus"; }
# truth about `pttctl status --json`: c is the channel, s all of it
is() { status "$1" | python3 -c 'import json, sys
s = json.load(sys.stdin); c = s["channels"][0]
sys.exit(not eval(sys.argv[1]))' "$2"; }
quiet='c["serviceStatus"] == "ready" and not c["transmitting"] and not c["activeRemoteParticipant"]'
both_quiet() { is talker "$quiet" && is listener "$quiet"; }
settle() { check "$1: nothing stuck, both idle" until_true 15 both_quiet; }
# talk SECONDS: in the background, long after what was said before; sets `pressed` and `talk`
talk() { sleep 3; pressed=$(monotonic_ns); pttctl talk --for "$1" --bus unix:path=/run/talker.bus >/dev/null & talk=$!; }
# heard NAME FROM TO: what the mouth says then has to be heard, until the next talk, whatever happened before
heard() { printf '{"name": "%s", "press": %d, "release": %d}\n' "$@" >> "$out/bursts"; }

for name in talker listener; do
  dbus-daemon --session --nofork --nopidfile "--address=unix:path=/run/$name.bus" >/dev/null 2>&1 &
  until_true 10 test -S /run/$name.bus || failed "a bus"
  mkdir -p /root/$name-state
done
echo "PTTRELAY_OPTIONS=--listen 127.0.0.1:4433 --channel Field" > /etc/default/pttrelay; systemctl start pttrelay
link_printed() { link=$(journalctl -u pttrelay -o cat | grep -o 'ptt://[^ ]*' | tail -1); [ -n "$link" ]; }
check "the relay prints an invitation" until_true 15 link_printed || exit 1
# settings NAME LINES_OF_AUDIO
settings() { printf '[daemon]\nname = "%s"\nbus = "unix:path=/run/%s.bus"\n\n[channel]\nlink = "%s"\n\n[accessories]\nautomatic = false\n\n[audio]\n%s\n' \
  "$1" "$1" "$link" "$2" > "/root/$1.toml"; }
start() { exec pttd --config "/root/$1.toml" --state "/root/$1-state" --log-level debug >/dev/null 2>>"$out/$1.log"; }
settings talker 'microphone = "plughw:CARD=Worn,DEV=1,SUBDEV=0"
fallback-microphone = "plughw:CARD=Loopback,DEV=1,SUBDEV=0"
speaker = "plughw:CARD=Loopback,DEV=0,SUBDEV=1"'
listener_sound='microphone = "plughw:CARD=Loopback,DEV=1,SUBDEV=3"
speaker = "plughw:CARD=Audio"'
settings listener "$listener_sound
fallback-speaker = \"plughw:CARD=Loopback,DEV=0,SUBDEV=2\""
plug
pttctl audio list > "$out/devices.txt" 2>&1; check "audio list names the USB card" grep -q '^plughw:CARD=Audio ' "$out/devices.txt"
start talker & talker=$!
start listener & listener=$!
check "talker and listener are in the channel" until_true 30 both_quiet

# --- a speaker that is pulled out while it plays
talk 6; sleep 3
check "the USB card plays" runs Audio/pcm0p
check "the worn microphone records" runs Worn/pcm1c
pulled=$(monotonic_ns); pull
echo "{\"speaker_pulled\": $pulled}" > "$out/instants"
wait $talk; settle "speaker pulled out"
heard "speaker pulled out" $((pulled - 2000000000)) $((pressed + 6000000000))
check "status says which speaker is used" is listener '"is used" in s.get("speakerProblem", "")' || status listener
talk 3; wait $talk; settle "without the USB card"
heard "without the USB card" "$pressed" $((pressed + 3000000000))

# --- a microphone whose card goes
talk 6; sleep 3
lost=$(monotonic_ns); worn unbind
wait $talk; settle "microphone's card gone"
heard "microphone's card gone" $((lost + 300000000)) $((pressed + 6000000000))
check "status says which microphone is used" is talker '"is used" in s.get("microphoneProblem", "")' || status talker
talk 3; wait $talk; settle "without the worn microphone"
heard "without the worn microphone" "$pressed" $((pressed + 3000000000))
check "no microphone runs outside of a press" eval '! runs Loopback/pcm1c'

# --- both are back
worn bind; check "the worn microphone's card is back" until_true 10 test -e /proc/asound/Worn/pcm1c; worn_speaks
plug; sleep 2
talk 2; wait $talk; settle "the worn microphone on trial"
talk 3; sleep 1.5
check "the worn microphone records again" runs Worn/pcm1c
check "the USB card plays again" runs Audio/pcm0p
wait $talk; settle "both are back"
check "nothing is wrong any more" eval 'is talker "not s.get(\"microphoneProblem\")" && is listener "not s.get(\"speakerProblem\")"' ||
  { status talker; status listener; }

# --- without a fallback: what is said waits for a card that is pulled out for a moment
kill $listener; wait $listener
settings listener "$listener_sound"
start listener & listener=$!
check "the listener is back" until_true 30 both_quiet
before=$(grep -c "speaker recovered" "$out/listener.log")
talk 5; sleep 2; pull; check "the USB card is gone" until_true 5 gone Audio; plug
wait $talk; settle "pulled out for a moment"
check "the speaker recovered" test "$(grep -c "speaker recovered" "$out/listener.log")" -gt "$before"

sleep 1; kill $mouths $ear $talker $listener; wait $mouths $ear 2>/dev/null
cp /root/ear.wav* "$out/"
say "$failures failed"
exit $((failures > 0))
