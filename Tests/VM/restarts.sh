# shellcheck shell=bash
# Sourced by system.sh, second boot: what systemd does with the shipped units when a program is killed again and again, hangs, or finds
# its port taken. Both programs run.
kills=20
# From the kill to the start that follows: the pause that the unit asks for, and what this loop needs to see it.
back_within=2000

main_pid() { systemctl show -P MainPID "$1"; }
# another UNIT PID: the unit runs, and not as that process
another() { local pid; pid=$(main_pid "$1"); [ "${pid:-0}" != 0 ] && [ "$pid" != "$2" ] && systemctl is-active --quiet "$1"; }
connected() { is 'c and c["serviceStatus"] == "ready"'; }
watchdog() {
  mkdir -p "/run/systemd/system/$1.service.d"
  printf '[Service]\nWatchdogSec=%s\n' "$2" > "/run/systemd/system/$1.service.d/watchdog.conf"
}

as worker pttctl leave --bus system
check "the configured channel is back" until_true 20 is 'c and c["name"] == "Field" and c["serviceStatus"] == "ready"'

# --- a relay that is killed twenty times: it is back each time as soon as the first, and so are its members
slowest=0
for n in $(seq $kills); do
  pid=$(main_pid pttrelay); killed=$(uptime_ms)
  systemctl kill -s KILL pttrelay
  until_true 40 another pttrelay "$pid" || { failed "kill $n of pttrelay: it is not started again"; break; }
  took=$(($(uptime_ms) - killed)); [ $took -le $slowest ] || slowest=$took
done
say "pttrelay killed $n times: started again after $slowest ms at most"
check "pttrelay is started again as soon after many kills" [ $slowest -le $back_within ]
check "its member is back" until_true 30 connected

# --- with Type=dbus, an end in good order may be a lost connection to the bus: nobody else starts it again
for unit in pttd pttrelay; do
  pid=$(main_pid $unit)
  systemctl kill -s TERM $unit
  check "$unit ends in good order: systemd starts it again" until_true 40 another $unit "$pid" || systemctl status $unit
  check "$unit is started again: the channel is ready" until_true 30 connected
done

# --- its port is another's for a while
printf 'import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(("127.0.0.1", 4433))\nprint("taken", flush=True)\ntime.sleep(600)\n' \
  > /tmp/taker.py
systemctl stop pttrelay
python3 /tmp/taker.py > /tmp/taker.out & taker=$!
check "another program takes the port" until_true 20 grep -q taken /tmp/taker.out
systemctl start pttrelay
check "pttrelay says who has its port" until_true 30 eval 'journalctl -u pttrelay -o cat | grep -q "another program listens there"' \
  || journalctl -u pttrelay -o cat | tail -5
kill $taker; wait $taker 2>/dev/null
check "it listens once the port is free" until_true 60 connected || journalctl -u pttrelay -o cat | tail -5

# --- one that hangs: its watchdog ends it
for unit in pttd pttrelay; do watchdog $unit 4; done
systemctl daemon-reload; systemctl restart pttrelay pttd
check "both run under a short watchdog" until_true 60 connected
for unit in pttd pttrelay; do
  pid=$(main_pid $unit); stopped=$(uptime_ms)
  systemctl kill -s STOP $unit
  check "$unit hangs: systemd starts it again" until_true 60 another $unit "$pid" || systemctl status $unit
  say "$unit hung: started again after $(($(uptime_ms) - stopped)) ms with a watchdog of 4 s"
  check "$unit hung: the channel is ready again" until_true 60 connected
done
rm -f /run/systemd/system/{pttd,pttrelay}.service.d/watchdog.conf; systemctl daemon-reload
