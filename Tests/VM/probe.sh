#!/bin/bash
# The harness proves its own parts in the guest, without pttd: virtual buttons through real BlueZ, sound through snd-aloop.
#   Tests/VM/probe
harness=/host/Tests/VM
. "$harness/guest-functions.sh"
say "systemd: $(systemctl is-system-running), BlueZ $(/usr/libexec/bluetooth/bluetoothd --version), $VM_ACCELERATOR"

modprobe -a uinput evdev
bluetoothd_waits
radio_on ptt-z aina anytone td-q2l microbit b01,secure hid-remote headset aina-v1 wired-headset foot-switch ||
  failed "virtual radio"
bluetoothd_begins
check "bluetoothd has the virtual adapters" until_true 20 adapter_there
timeout 150 python3 "$harness/probe_buttons.py" || failed "virtual buttons"
timeout 150 python3 "$harness/probe_devices.py" || failed "virtual devices"

# --- sound: what the mouth plays comes out at the ear at the same instant, by both clocks (judged on the host by probe)
check "snd-aloop" modprobe snd-aloop index=0 pcm_substreams=4
export MOUTH=/root/speech.wav MOUTH_CLOCK=/ctl/out/mic.wav.clock
cp /host/recordings/vm/speech.wav{,.loud} /root/ || failed "no speech"
python3 "$harness/loopback.py" play plughw:Loopback,0,0 $MOUTH $MOUTH_CLOCK & mouth=$!
python3 "$harness/loopback.py" record plughw:Loopback,1,0 /root/ear.wav & ear=$!
sleep 6; kill $mouth $ear; wait $mouth $ear
check "the ear recorded" test -s /root/ear.wav.clock
cp /root/ear.wav* /ctl/out/

# --- the units, the D-Bus policy and the sandbox, with a stand-in for pttd
install -m 755 "$harness/probe_service.py" /usr/bin/pttd; install -m 755 /bin/true /usr/bin/pttrelay
# --- where the packages put them
install -Dm 644 -t /usr/lib/systemd/system /host/systemd/pttd.service /host/systemd/pttrelay.service /host/systemd/pttd-pan.service
install -Dm 644 /host/systemd/user/pttd.service /usr/lib/systemd/user/pttd.service
install -Dm 644 /host/systemd/pttd.sysusers /usr/lib/sysusers.d/pttd.conf
install -Dm 644 /host/systemd/pttd.tmpfiles /usr/lib/tmpfiles.d/pttd.conf
install -Dm 644 /host/systemd/org.pttd.conf /usr/share/dbus-1/system.d/org.pttd.conf
install -Dm 644 -t /usr/lib/udev/rules.d /host/udev/*.rules
check "the system bus is $VM_BUS" pgrep -x -P 1 "$VM_BUS.*"
check "the user pttd" systemd-sysusers /usr/lib/sysusers.d/pttd.conf
check "its directories" systemd-tmpfiles --create /usr/lib/tmpfiles.d/pttd.conf
systemctl daemon-reload; systemctl reload dbus
check_units
check "the udev rules are read" udevadm control --reload
check "pttd.service starts" systemctl start pttd
journalctl -u pttd -o cat | sed 's/^/          /'
check "what the daemon needs works, what it must not does not" grep -q 'probe: done 0' <(journalctl -u pttd -o cat)
useradd -M -G pttd worker; useradd -M stranger
ask=(busctl --system get-property org.pttd /org/pttd org.pttd.Manager1 Version)
check "a member of the group pttd may use org.pttd" setpriv --reuid=worker --regid=worker --init-groups "${ask[@]}"
if setpriv --reuid=stranger --regid=stranger --init-groups "${ask[@]}" 2>/dev/null; then failed "a stranger may use org.pttd"; else passed "a stranger is refused"; fi
for unit in pttd pttrelay; do say "$(systemd-analyze security $unit.service --no-pager 2>/dev/null | tail -1)"; done
say "$failures failed"
exit $((failures > 0))
