#!/bin/bash
# A speaker-microphone with the hands-free profile and its sound, in the guest: first PipeWire with WirePlumber is the audio gateway, then
# BlueALSA. Started by Tests/VM/run-worn --probe on the host, which then judges the recordings (judge_worn.py).
harness=/host/Tests/VM
. "$harness/guest-functions.sh"
. "$harness/worn-functions.sh"

bluetoothd_waits
radio_on worn=speaker-mic music=music-headset || { failed "the virtual devices"; exit 1; }
bluetoothd_begins
check "bluetoothd has both adapters" until_true 60 two_adapters
python3 "$harness/worn_sound.py" noise /root/machine.wav 3 2
vbt worn speak noise >/dev/null

# --- PipeWire
pipewire_on || { failed "PipeWire"; exit 1; }
check "the speaker-microphone is paired" pair "Virtual Speaker Mic" || exit 1
check "PipeWire has its microphone" until_true 20 microphone_there
source=$(microphone) sink=$(speaker)
say "its microphone is $source, its speaker is $sink"
check "no link for sound while nobody listens" sco worn 0
check "ALSA's pulse plug-in records it" record "pulse:DEVICE=$source" pipewire-microphone.wav 400
check "the link for sound was opened" sco worn 1
check "and goes when nobody listens any more" until_true 10 sco worn 0
check "ALSA's pulse plug-in plays to it" play "pulse:DEVICE=$sink" pipewire-speaker.wav
check "the link for sound goes again" until_true 10 sco worn 0
pacat -p --device="$sink" --rate=8000 --channels=1 --format=s16le /dev/zero & kept=$!
check "silence played opens the link" until_true 5 sco worn 1
sleep 8
check "and keeps it" sco worn 1
links=$(field links "$(vbt worn sco)")
check "a recording uses the link that is kept" record "pulse:DEVICE=$source" pipewire-kept.wav 400
check "it was no new link" links_are "$links"
kill $kept
check "the link goes when the silence ends" until_true 10 sco worn 0
vbt worn drop >/dev/null
check "the microphone is gone with the device" until_true 5 eval '! microphone_there'

# --- a headset for music too, which WirePlumber takes from one profile to the other
check "the music headset is paired" pair "Virtual Music Headset" || exit 1
vbt music speak noise >/dev/null
check "PipeWire has its microphone" until_true 20 microphone_there
check "it is there for music" until_true 10 profile_is a2dp-sink
check "a recording takes it to the hands-free profile" record "pulse:DEVICE=$(microphone)" pipewire-switched.wav 1500 1.4
check "and it is back for music afterwards" until_true 10 profile_is a2dp-sink
check "the link for sound is gone" sco music 0
vbt music drop >/dev/null
check "its microphone is gone" until_true 5 eval '! microphone_there'
pipewire_off

# --- BlueALSA
bluealsa_on || { failed "BlueALSA"; exit 1; }
device="bluealsa:DEV=$(field address "$(vbt worn state)"),PROFILE=sco"
check "the device opens its line to the machine" vbt worn dial
check "BlueALSA has its microphone" until_true 20 eval 'bluealsa-cli list-pcms | grep -q "hfpag/source"'
check "no link for sound while nobody listens" sco worn 0
check "ALSA's bluealsa plug-in records it" record "plug:{SLAVE=\"$device\"}" bluealsa-microphone.wav 400
check "the link for sound goes" until_true 10 sco worn 0
check "ALSA's bluealsa plug-in plays to it" play "plug:{SLAVE=\"$device\"}" bluealsa-speaker.wav
bluealsa_off

say "$failures failed"
exit $((failures > 0))
