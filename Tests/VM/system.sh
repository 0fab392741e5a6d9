#!/bin/bash
# The second proof, in the guest: org.pttd on the system bus as systemd runs it, what survives SIGKILL and a reboot, and a push
# that wakes a listener. Started twice by Tests/VM/run-system, with one folder for /var/lib: `system.sh first`, then `system.sh second`.
harness=/host/Tests/VM
. "$harness/guest-functions.sh"
out=/ctl/out
boot=$1
app=org.example.Radio                      # a program with a channel manager, which D-Bus can start
topic=$app.voip-ptt
app_channel=5e55a9e5-0000-4000-8000-00000000a99a

status() { pttctl status --json; }
# truth about `pttctl status --json`: c is the active channel, or None
is() { status | python3 -c 'import json, sys
s = json.load(sys.stdin); c = (s["channels"] or [None])[0]
sys.exit(not eval(sys.argv[1]))' "$1"; }
as() { setpriv --reuid="$1" --regid="$1" --init-groups "${@:2}"; }
# the bus refuses it, and says so
refused() {
  if as stranger "${@:2}" >/tmp/refused 2>&1; then failed "$1: a stranger may"
  elif grep -qi 'access.\?denied\|not allowed\|does not let you' /tmp/refused; then passed "$1: a stranger is refused"
  else failed "$1: a stranger fails for another reason: $(tail -1 /tmp/refused)"; fi
}
milliseconds() { date +%s%3N; }

# --- the packages, and a program that none of them has; the state is on a file system that the next boot finds again
mkdir -p /persistent && mount -t ext4 LABEL=persistent /persistent || exit 1
install_packages || exit 1
install -m 755 "${PROGRAMS:?}/PushToTalkApp" /usr/bin/ || { failed "no PushToTalkApp in $PROGRAMS"; exit 1; }
# pttrelay has a dynamic user: systemd keeps its state in /var/lib/private.
mkdir -p /persistent/{pttd,private} /var/lib/{pttd,private}; chown pttd /persistent/pttd; chmod 700 /persistent/{pttd,private}
mount --bind /persistent/pttd /var/lib/pttd && mount --bind /persistent/private /var/lib/private || failed "the state of the last boot"
useradd -M -G pttd worker; useradd -M stranger; useradd -M -G pttd,audio radio
modprobe snd-aloop index=0 pcm_substreams=4 || failed "snd-aloop"

# --- the relay takes pushes; its key, and so its invitations, outlive the boot
certificates=/persistent/certificates; mkdir -p $certificates
[ -s $certificates/radio.pem ] || pttrelay push-certificate $topic > $certificates/radio.pem 2> $certificates/client.toml
mkdir -p /etc/pttrelay /etc/pttd
{ echo '[push]'; echo 'listen = "127.0.0.1:8443"'; sed -n '/^\[\[push.client/,$p' $certificates/client.toml; } > /etc/pttrelay/pttrelay.toml
echo "PTTRELAY_OPTIONS=--listen 127.0.0.1:4433 --channel Field --channel Yard" > /etc/default/pttrelay
systemctl start pttrelay
links() { journalctl -u pttrelay -o cat | grep -o 'ptt://[^ ]*'; }
check "the relay prints its invitations" until_true 20 eval '[ "$(links | wc -l)" -ge 2 ]' || { journalctl -u pttrelay -o cat | tail; exit 1; }
field=$(links | sed -n 1p); yard=$(links | sed -n 2p)
printf '[channel]\nlink = "%s"\n\n[audio]\nmicrophone = "plughw:Loopback,1,0"\nspeaker = "plughw:Loopback,0,1"\nmicrophone-watch = false\n' "$field" > /etc/pttd/pttd.toml

# --- a program of the user radio, as an application developer's package would install it
cat > /usr/share/dbus-1/system-services/$app.service <<SERVICE
[D-BUS Service]
Name=$app
Exec=/usr/bin/PushToTalkApp --name $app --record /persistent/radio.log --listen 3000
User=radio
SERVICE
cat > /usr/share/dbus-1/system.d/$app.conf <<POLICY
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <policy user="radio"><allow own="$app"/></policy>
</busconfig>
POLICY
touch /persistent/radio.log; chown radio /persistent/radio.log
systemctl reload dbus

# when the log says that the last restored channel was joined, on the clock of uptime_ms
restored_at() { echo $(($(journalctl -u pttd -o cat | sed -n 's/.*joined.*reason=channelRestoration.* t=\([0-9]*\).*/\1/p' | tail -1) / 1000000)); }
restored_limit=1500     # 500 ms of it are systemd's pause before it starts a program that failed
is_active() { is "c and c['uuid'] == '$1'"; }
if [ "$boot" = first ]; then
  check "pttd.service starts" systemctl start pttd || journalctl -u pttd -o cat | tail -20
  check "the configured channel is joined" until_true 20 is 'c and c["name"] == "Field" and c["serviceStatus"] == "ready"'

  # The niceness is the 19th field (proc_pid_stat(5)); the thread has the name of the program.
  check "its control loop runs before ordinary threads" awk '$2 == "(pttd)" && $19 == -11 { found = 1 } END { exit !found }' /proc/"$(systemctl show -P MainPID pttd)"/task/*/stat

  # --- an ordinary user of the group, and others
  check "introspect as a member of the group" as worker sh -c 'busctl --system introspect org.pttd /org/pttd | grep -q "JoinChannel.*method"'
  check "call as a member of the group" as worker busctl --system call org.pttd /org/pttd org.pttd.Manager1 ListInhibitors
  check "get a property as a member of the group" as worker busctl --system get-property org.pttd /org/pttd org.pttd.Manager1 ActiveChannel
  refused introspect busctl --system introspect org.pttd /org/pttd
  refused call busctl --system call org.pttd /org/pttd org.pttd.Manager1 ListInhibitors
  refused monitor pttctl monitor --bus system

  # --- a stranger's signals of 5 MB to pttd itself: the policy of org.pttd keeps them away, and no press is lost
  pid=$(systemctl show -P MainPID pttd)
  as stranger python3 $harness/flood_signals.py org.pttd > /tmp/flood 2>&1 & flood=$!
  check "a stranger sends signals of 5 MB" until_true 30 grep -q '^3 signals' /tmp/flood || cat /tmp/flood
  held=0
  for n in 1 2 3 4 5 6 7 8; do
    as worker pttctl talk --for 1 --bus system > /tmp/talk 2>&1 && held=$((held + 1)) || cat /tmp/talk
  done
  say "beside a stranger's flood, $(tail -1 /tmp/flood), $held of 8 presses held"
  check "all presses hold beside a stranger's signals" [ $held = 8 ]
  check "pttd is the same process" [ "$(systemctl show -P MainPID pttd)" = "$pid" ]
  kill $flood; wait $flood 2>/dev/null

  # --- monitor: what happens is seen as it happens (the bus lets root alone monitor messages of others; signals are everybody's)
  as worker pttctl monitor --bus system > /tmp/monitor.worker &
  busctl --system monitor org.pttd > /tmp/monitor.root 2>&1 &
  until_true 10 grep -q Channel /tmp/monitor.worker
  as worker pttctl talk --for 0.5 --bus system || failed "a member of the group talks"
  check "a member of the group monitors" until_true 10 grep -q 'transmitting (userRequest)' /tmp/monitor.worker
  check "busctl monitor shows the signals" until_true 10 grep -q 'PropertiesChanged' /tmp/monitor.root
  pkill -f 'pttctl monitor'; pkill -f 'busctl --system monitor'

  # --- a call of a softphone
  as worker pttctl inhibit --bus system --who Softphone --why "a call" sleep 4 & inhibit=$!
  check "a lock is a call" until_true 10 sh -c 'busctl --system get-property org.pttd /org/pttd org.pttd.Manager1 Call | grep -q Softphone'
  if as worker pttctl talk --for 1 --bus system 2>/tmp/refusal; then failed "talked during a call"; else passed "no talking during a call: $(cat /tmp/refusal)"; fi
  wait $inhibit
  check "talking after the call" as worker pttctl talk --for 0.5 --bus system

  # --- another channel, SIGKILL while talking
  check "join another channel by its link" as worker pttctl join --bus system "$yard"
  check "it is ready" until_true 20 is 'c and c["name"] == "Yard" and c["serviceStatus"] == "ready"'
  for n in 1 2 3; do
    as worker pttctl talk --for 20 --bus system >/dev/null 2>&1 & talk=$!
    check "SIGKILL $n: transmitting" until_true 10 is 'c and c["transmitting"]'
    killed=$(uptime_ms); systemctl kill -s KILL pttd
    check "SIGKILL $n: the channel is restored" until_true 10 is 'c and c["name"] == "Yard"'
    check "SIGKILL $n: nobody transmits" is 'c and not c["transmitting"]'
    took=$(($(restored_at) - killed)); say "SIGKILL $n: restored $took ms after it"
    check "SIGKILL $n: restored in time" [ $took -le $restored_limit ]
    wait $talk
    check "SIGKILL $n: ready again" until_true 20 is 'c and c["name"] == "Yard" and c["serviceStatus"] == "ready" and not c["transmitting"]'
  done
  check "leaving brings the configured channel back" as worker pttctl leave --bus system
  check "it is ready" until_true 20 is 'c and c["name"] == "Field" and c["serviceStatus"] == "ready"'

  # --- a program joins; its death ends nothing but its transmission; a push starts it
  as radio PushToTalkApp --name $app --record /persistent/radio.log --join $app_channel &
  check "a program joins" until_true 20 grep -q "^receivedEphemeralPushToken" /persistent/radio.log
  check "its channel is the active one" until_true 10 is_active $app_channel
else
  check "pttd.service starts" systemctl start pttd || journalctl -u pttd -o cat | tail -20
  say "pttd.service was started $(($(cut -d. -f1 /proc/uptime))) s after the boot"
  check "the program's channel is restored after the reboot" until_true 10 is_active $app_channel
fi

# --- the push of Apple's article, but for host, token and topic

running() { busctl --system status "$app"; }
# After the reboot the restoration has started it.
check "the program runs" until_true 20 running
pkill -KILL -x PushToTalkApp
check "the program is killed" until_true 10 eval '! running'
check "the channel stays without its program" is_active $app_channel
token=$(sed -n 's/^receivedEphemeralPushToken //p' /persistent/radio.log | tail -1)
asked() { grep -c '^incomingPushResult The name of the active speaker' /persistent/radio.log; }
# shellcheck disable=SC2034     # `eval` reads both below
{ asked_before=$(asked); activated_before=$(grep -c '^didActivate' /persistent/radio.log); }
pttrelay push-server-certificate > /tmp/relay.pem
push() {
  curl -sS -d '{"activeSpeaker":"The name of the active speaker"}' -H "apns-push-type: pushtotalk" -H "apns-topic: $topic" \
    -H "apns-priority: 10" -H "apns-expiration: 0" --http2 --cert "$certificates/radio.pem" --cacert /tmp/relay.pem \
    -o /tmp/push.body -w '%{http_version} %{http_code}' "https://localhost:8443/3/device/$token"
}
sent=$(milliseconds)
check "the relay takes the push" eval '[ "$(push)" = "2 200" ]' || cat /tmp/push.body
check "the program is started and asked" until_true 25 eval '[ "$(asked)" -gt "$asked_before" ]'
say "the push was answered $(($(milliseconds) - sent)) ms after it was sent"
check "the speaker is shown" until_true 10 is 'c and c["activeRemoteParticipant"] == "The name of the active speaker"'
check "its session is activated" until_true 10 eval '[ "$(grep -c "^didActivate" /persistent/radio.log)" -gt "$activated_before" ]'

pkill -x PushToTalkApp
if [ "$boot" = second ]; then . "$harness/restarts.sh"; fi

# --- an end in order; the state stays
journalctl -u pttd -o cat > "$out/pttd-$boot.log"; journalctl -u pttrelay -o cat > "$out/pttrelay-$boot.log"
cp /persistent/radio.log "$out/radio-$boot.log"
sync
if [ "$boot" = second ]; then check "pttd.service stops" systemctl stop pttd; fi     # the first boot ends as machines do: by shutting down
say "$failures failed"
exit $((failures > 0))
