#!/bin/bash
# Two machines in one guest that find each other by Bluetooth alone: two adapters, a pttd and a bus for org.pttd each, and no Avahi. They
# have no network, then Bluetooth's own, then a cable. Started by Tests/VM/run-nearby; the scenario is nearby.py.
harness=/host/Tests/VM
. "$harness/guest-functions.sh"
out=/ctl/out
install_packages || exit 1
modprobe -a bluetooth hci_vhci snd-aloop veth bnep bridge || { failed "kernel modules"; exit 1; }
python3 "$harness/virtual_pair.py" >>$out/radio.log 2>&1 & radio=$!
until_true 60 test -S /run/pair.sock || { failed "the virtual radio"; tail $out/radio.log; exit 1; }
# Classic Bluetooth, which carries the network. Its controllers have no signal strength, without which BlueZ tells of no advertisement.
btvirt -B -l2 >>$out/radio.log 2>&1 & classic=$!
systemctl start bluetooth
adapters=(00:AA:02:00:00:01 00:AA:02:00:00:02 00:AA:01:00:00:02 00:AA:01:01:00:03)
all_on() { [ "$(for a in "${adapters[@]}"; do bluetoothctl <<<"show $a"; done | grep -c 'Powered: yes')" = 4 ]; }
check "bluetoothd has four adapters that are on" until_true 30 all_on || { bluetoothctl list; exit 1; }
# The guest's own name is that of a talk button, which pttd would use as one.
for path in $(busctl tree --list org.bluez | grep -x '/org/bluez/hci[0-9]*'); do
  busctl set-property org.bluez "$path" org.bluez.Adapter1 Alias s "Site office" || failed "the name of $path"
done

# --- the visitor's pttd has a network of its own; D-Bus and BlueZ do not mind
ip netns add visitor
ip link add cable type veth peer name plug netns visitor
ip address add 10.77.0.1/24 dev cable
ip -n visitor address add 10.77.0.2/24 dev plug
ip -n visitor link set lo up
settings() { cat <<TOML
[daemon]
name = "$1"
bus = "unix:path=/run/$2.bus"

[nearby]
adapter = "$3"
network-adapter = "$6"

[audio]
microphone = "plughw:Loopback,1,$4"
speaker = "plughw:Loopback,0,$5"
microphone-watch = false
TOML
}
settings Anna host 00:AA:02:00:00:01 0 1 00:AA:01:00:00:02 > /root/host.toml
settings Ben visitor 00:AA:02:00:00:02 2 3 00:AA:01:01:00:03 > /root/visitor.toml
for name in host visitor; do
  dbus-daemon --session --nofork --nopidfile --address=unix:path=/run/$name.bus >/dev/null 2>&1 &
  until_true 10 test -S /run/$name.bus || failed "a bus"
  mkdir -p /root/$name-state
done
start() { pttd --config "/root/$1.toml" --state "/root/$1-state" --log-level debug >/dev/null 2>>"$out/$1.log"; }
start host & host=$!
ip netns exec visitor bash -c "exec pttd --config /root/visitor.toml --state /root/visitor-state --log-level debug >/dev/null 2>>$out/visitor.log" & visitor=$!
# Both machines are one kernel here: the visitor's end of the network is brought into its namespace.
move_plug() {
  while sleep 0.1; do
    for link in /sys/class/net/bnep*; do
      [ -e "$link" ] && [ "$(cat "$link/address" 2>/dev/null)" = "00:aa:01:01:00:03" ] || continue
      ip link set "${link##*/}" netns visitor && ip -n visitor link set "${link##*/}" up
    done
  done
}
move_plug & mover=$!
python3 "$harness/nearby.py" || failures=$((failures + 1))
kill $host $visitor $mover; sleep 1; kill $radio $classic
say "$failures failures"
exit $((failures > 0))
