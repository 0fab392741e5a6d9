#!/bin/bash
# The harness proves its own parts in the guest, without pttd: virtual buttons through real BlueZ, sound through snd-aloop.
#   vm-run -s <repository> -o <folder> Tests/VM/probe.sh
harness=/host/Tests/VM
. "$harness/guest-functions.sh"
say "systemd: $(systemctl is-system-running), BlueZ $(/usr/libexec/bluetooth/bluetoothd --version), $VM_ACCELERATOR"

radio_on ptt-z aina anytone td-q2l microbit || failed "virtual radio"
systemctl start bluetooth
check "bluetoothd has the virtual adapter" until_true 20 adapter_there
timeout 150 python3 "$harness/probe_buttons.py" || failed "virtual buttons"

check "snd-aloop" modprobe snd-aloop index=0 pcm_substreams=4
if [ -f /host/recordings/vm/speech.wav ]; then
  # 'ear' captures what 'mouth' feeds, both started apart: align.py on the host finds the offset
  aplay -q -D plughw:Loopback,0,0 /host/recordings/vm/speech.wav & mouth=$!
  sleep 1
  arecord -q -D plughw:Loopback,1,0 -f S16_LE -c 1 -r 48000 -d 4 /ctl/out/loopback.wav || failed "recording"
  kill $mouth; wait $mouth 2>/dev/null
  passed "snd-aloop recorded $(stat -c %s /ctl/out/loopback.wav) bytes"
fi
exit $failures
